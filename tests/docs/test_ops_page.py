"""docs/ops.md is what tools/write_ops_page.py writes."""
import runpy
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / 'tools' / 'write_ops_page.py'


def test_the_ops_page_is_up_to_date():
    tool = runpy.run_path(str(TOOL))
    assert tool['PAGE'].read_text() == tool['page'](), 'run ./dev python tools/write_ops_page.py'
