"""How the tables of the grammar are read (random_grammar.py)."""

import re


def weighted(texts):
    """[(weight, text)] of a table of the grammar."""
    table = []
    for text in texts:
        grows, head, rest = re.match(r"(\^?)(?:(\d+)\| )?(.*)", text, re.DOTALL).groups()
        table.append((int(head or 1), grows + rest))
    return table


def expressions(table):
    return {kind: weighted(line.strip() for line in text.splitlines() if line.strip()) for kind, text in table.items()}


def statements(text):
    return weighted(paragraph.strip("\n") for paragraph in re.split(r"\n\s*\n", text.strip("\n")))
