"""The report of smelt.explain as one HTML file that needs no network."""
import json
from pathlib import Path


def page_of(data):
    template = (Path(__file__).parent / 'page.html').read_text()
    # Inside of a script element "</" would end it, whatever it stands in.
    text = json.dumps(data).replace('</', '<\\/').replace('<!--', '<\\!--')
    return template.replace('"SMELT_DATA"', text, 1).replace('SMELT_TITLE', _escaped(data['name']), 1)


def write_page(data, path):
    with open(path, 'w') as file:
        file.write(page_of(data))


def _escaped(text):
    return text.replace('&', '&amp;').replace('<', '&lt;')
