"""What all tests share."""

import os

# oneDNN would use AMX where the processor has it, also where the machine it runs on does not let it. Read once, by the
# first op that uses oneDNN.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
