"""``python -m tests.docs``: writes the parts of README and docs that come from the code (``make docs``)."""

from tests.docs import example, strategy_pictures
from tests.docs.pages import ROOT, pages, rewritten
from tests.docs.write import write

for file, content in example.files():
    (ROOT / file).write_bytes(content)
strategy_pictures.FOLDER.mkdir(parents=True, exist_ok=True)
for file, content in strategy_pictures.files():
    (ROOT / file).write_bytes(content)
for page in pages():
    text = page.read_text(encoding="utf-8")
    page.write_text(rewritten(text, write), encoding="utf-8")
