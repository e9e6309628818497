"""Tokens as vectors: learned, one-hot, pretrained, by their letters."""

import pytest
import torch

from elman.models.embedding import Embedding, Ngrams, Pretrained, RareTokenDropout, WordBatch, Words

IDS = torch.tensor([[3, 0], [1, 3]])


def test_one_hot_is_an_embedding_with_the_identity_L1():
    one_hot, embedding = Embedding(4, 0), Embedding(4, 4)
    with torch.no_grad():
        embedding.weight.copy_(torch.eye(4))
    assert torch.equal(one_hot(IDS), embedding(IDS))
    assert one_hot.output_size == 4
    assert not list(one_hot.parameters())


def test_an_embedding_is_E_x_L1():
    embedding = Embedding(4, 3)
    x = torch.nn.functional.one_hot(IDS, 4).float()
    assert torch.equal(embedding(IDS), x @ embedding.weight)


def test_hiding_shows_rare_tokens_as_unknown():
    hiding = RareTokenDropout(0.5, [0, 0, 0, 1, 9], unknown=1)
    tokens = torch.tensor([3, 4, 2]).repeat(4000, 1)
    shown = hiding.train()(tokens)
    shares = (shown == 1).float().mean(0)
    assert shares[0] == pytest.approx(0.5 / 1.5, abs=0.03)
    assert shares[1] == pytest.approx(0.5 / 9.5, abs=0.02)
    assert shares[2] == 0  # a marker, which training never counts
    assert ((shown == 1) | (shown == tokens)).all()
    assert hiding.eval()(tokens) is tokens
    assert not hiding.state_dict()


@pytest.mark.parametrize("tuned", [True, False])
def test_pretrained_vectors(tuned):
    table = Pretrained(3, 4, tuned=tuned)
    matrix = torch.randn(2, 4) * 7
    table.fill(matrix.numpy())
    assert (table.weight[0] == 0).all()
    scale = matrix / table.weight[1:].detach()
    assert torch.allclose(scale, scale[0, 0])  # only their common length changes
    assert table.weight[1:].std().item() == pytest.approx(4**-0.5, rel=1e-3)
    assert [*map(str, table.state_dict())] == ["weight"]
    assert table.weight.requires_grad == tuned
    assert len(list(table.parameters())) == tuned
    assert torch.equal(table(torch.tensor([2, 0])), table.weight[[2, 0]])


def test_vectors_that_are_all_zero_stay_finite():
    table = Pretrained(3, 4, tuned=False)
    table.fill(torch.zeros(2, 4))
    assert torch.isfinite(table.weight).all()


def batch():
    return WordBatch(
        tokens=torch.tensor([4, 1, 2]),
        vectors=torch.tensor([1, 0, 2]),
        characters=torch.tensor([[3, 2, 0], [2, 0, 0], [1, 2, 3]]),
        character_lengths=torch.tensor([2, 1, 3]),
        places=torch.tensor([[0, 1, 0], [2, 0, 0]]),
        lengths=torch.tensor([3, 1]),
    )


def test_a_word_is_its_parts_side_by_side():
    words = Words(
        5, 4, pretrained=Pretrained(3, 2, tuned=True), characters=4, character_width=3, cell="gru"
    ).eval()
    words.pretrained.fill(torch.randn(2, 2))
    found = words(batch())
    assert found.shape == (2, 3, words.output_size) == (2, 3, 4 + 2 + 6)
    assert torch.equal(found[0, 0], found[0, 2])
    one = batch()
    spelled = words.spelling(words.letters(one.characters[2:, :3]), torch.tensor([3])).last[0]
    expected = torch.cat([words.embedding.weight[2], words.pretrained.weight[2], spelled])
    torch.testing.assert_close(found[1, 0], expected, rtol=1e-5, atol=1e-6)


def test_token_dropout_shows_the_first_word_which_is_unknown():
    words = Words(5, 4, token_dropout=0.5)
    one = batch()
    many = one._replace(places=torch.ones(200, 20, dtype=torch.long), lengths=torch.full((200,), 20))
    shown = words.train()(many)
    hidden = (shown == words.embedding.weight[one.tokens[0]]).all(-1)
    assert hidden.float().mean().item() == pytest.approx(0.5, abs=0.05)
    assert (shown[~hidden] == words.embedding.weight[one.tokens[1]]).all()
    assert (words.eval()(many) == words.embedding.weight[one.tokens[1]]).all()


def test_a_word_without_letters_or_vectors():
    words = Words(5, 0)
    assert words(batch()).shape == (2, 3, 5)
    assert words.spelling is None
    assert words.pretrained is None


def test_ngrams_add_what_the_tokens_before_were():
    """Equal n-grams get equal rows wherever they stand; an n-gram does not reach over the beginning."""
    ngrams = Ngrams(3, 8).eval()
    added = ngrams(torch.tensor([[5, 6, 7, 5, 6, 7], [9, 9, 5, 6, 7, 1]]))
    assert added.shape == (2, 6, 8)
    assert torch.equal(added[0, 5], added[1, 4])  # 5 6 7
    assert torch.equal(added[0, 2], added[0, 5])
    assert not torch.equal(added[0, 0], added[0, 3])  # 5 at the beginning, and 5 after 6 7
    assert len(ngrams.tables) == 2


def test_ngrams_are_left_out_in_training_only():
    ngrams = Ngrams(2, 4, dropout=0.5)
    ids = torch.arange(4000).reshape(40, 100)
    share = (ngrams(ids) == 0).all(-1).float().mean()
    assert 0.45 < share < 0.55
    assert (ngrams.eval()(ids) != 0).any(-1).all()
