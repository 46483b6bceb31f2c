"""The demo's job: the sentences, the batches, the model's answers, the table."""

from __future__ import annotations

import argparse
import io

import pytest
import torch
from rich.console import Console
from sentence_transformers import SentenceTransformer

from pliant.cli import demo, demo_worker, embedder
from pliant.cli.sentences import prose, sentences
from tests.helpers import compiled

TEXT = """A first sentence with *some* words.  The second
one spans two lines!  lower case is no start of one. And `code` is kept.

   >>> print("no prose here at all, it is code.")

Too short. Is this one a question or not?
"""


@pytest.fixture(scope="module")
def model_and_tokenizer():
    return embedder.load()


@pytest.fixture(scope="module")
def batches(model_and_tokenizer):
    return embedder.batches(sentences(60 * 14), model_and_tokenizer[1], 60)


def test_prose_keeps_whole_plain_sentences():
    assert list(prose(TEXT)) == [
        "A first sentence with some words.",
        "The second one spans two lines! lower case is no start of one.",
        "And code is kept.",
        "Is this one a question or not?",
    ]


def test_sentences_are_many_different_and_the_same_each_time():
    found = sentences(500)
    assert len(found) == len(set(found)) == 500
    assert found == sentences(500) and found != sentences(500, seed=1)
    assert max(len(s.split()) for s in found) > 4 * min(len(s.split()) for s in found)


def test_batches_have_fifty_shapes_single_texts_among_them(batches):
    shapes = [tuple(tensors["input_ids"].shape) for _, tensors in batches]
    assert len(shapes) == 60 and len(set(shapes)) >= 50
    assert any(batch == 1 for batch, _ in shapes)
    assert all(len(texts) == shape[0] for (texts, _), shape in zip(batches, shapes))
    used = [text for texts, _ in batches for text in texts]
    assert used == sentences(60 * 14)[: len(used)]  # every text once, in order


def test_too_few_texts_are_refused(model_and_tokenizer):
    with pytest.raises(ValueError, match="more than 3 texts"):
        embedder.batches(["One.", "Two.", "Three."], model_and_tokenizer[1], 10)


def test_embeddings_are_those_of_sentence_transformers(model_and_tokenizer, batches):
    model, tokenizer = model_and_tokenizer
    texts = batches[0][0] + batches[1][0]
    reference = SentenceTransformer(str(embedder.get_model_path()), device="cpu").encode(
        texts, convert_to_tensor=True, show_progress_bar=False
    )
    with torch.inference_mode():
        torch.testing.assert_close(model(**tokenizer(texts)), reference, atol=1e-6, rtol=0)


def test_compiled_embeddings_equal_eager_and_shapes_share_entries(model_and_tokenizer, batches):
    model, _ = model_and_tokenizer
    embed = compiled(model)
    chosen = [tensors for _, tensors in batches[:12]]
    with torch.inference_mode():
        for tensors in chosen:
            torch.testing.assert_close(embed(**tensors), model(**tensors), atol=1e-5, rtol=0)


def test_search_finds_the_text_itself_first(model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    texts = ["The cat sleeps on the sofa.", "Prices rose in the second quarter.", "Water boils at a hundred degrees."]
    with torch.inference_mode():
        found = demo_worker.search("At which temperature does water boil?", model, tokenizer, texts, model(**tokenizer(texts)), top=2)
    assert [text for _, text in found][0] == texts[2]
    assert found[0][0] > found[1][0]


def test_the_table_holds_every_figure():
    result = {
        "system": "pliant", "first_s": 1.25, "total_s": 2.5, "steady_s": 2.0, "eager_steady_s": 2.5, "steady_ratio": 0.8, "lost_s": 0.5,
        "stalls": [((3, 9), 0.7)], "captures": 2, "recompiles": 1, "graph_breaks": 0, "dropped": 0, "difference": 3e-7,
    }  # fmt: skip
    console = Console(file=io.StringIO(), width=100)
    demo.show([result], {"texts": 300, "tokens": 9000, "shapes": 55}, console)
    out = console.file.getvalue()
    for figure in ("1.25 s", "2.50 s", "2.00 s", "0.800", "0.50 s", "3.0e-07", "300 sentences", "55 different"):
        assert figure in out


def test_missing_packages_are_named(monkeypatch, capsys):
    monkeypatch.setattr(demo, "NEEDS", ("no_such_package_here",))
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    assert demo.run(parser.parse_args([])) == 1
    assert "no_such_package_here" in capsys.readouterr().out
