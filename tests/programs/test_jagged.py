"""Ragged features: values with lengths, several keys in one object, caches that the object fills while it is used.

`Keyed` and `Jagged` have the shape of torchrec's KeyedJaggedTensor and JaggedTensor; the real ones are tested where they are installed.
"""

from __future__ import annotations

import copy
import warnings

import pytest
import torch

import pliant
from tests.helpers import check, compiled

KEYS = ("a", "b", "c")
MANY = tuple(f"k{i}" for i in range(60))


class Jagged:
    def __init__(self, values, lengths, offsets=None):
        self._values = values
        self._lengths = lengths
        self._offsets = offsets

    def values(self):
        return self._values

    def lengths(self):
        return self._lengths

    def offsets(self):
        if self._offsets is None:
            zero = self._lengths.new_zeros(1)
            self._offsets = torch.cat([zero, self._lengths.cumsum(0)])
        return self._offsets


class Keyed:
    """Several jagged features, one after the other. What is derived is computed once and kept on the object."""

    def __init__(self, keys, values, lengths, length_per_key=None):
        self._keys = keys
        self._values = values
        self._lengths = lengths
        self._length_per_key = length_per_key
        self._offset_per_key = None
        self._dict = None

    def stride(self):
        return self._lengths.numel() // len(self._keys)

    def length_per_key(self):
        if self._length_per_key is None:
            self._length_per_key = self._lengths.view(len(self._keys), -1).sum(1).tolist()
        return self._length_per_key

    def offset_per_key(self):
        if self._offset_per_key is None:
            offsets = [0]
            for n in self.length_per_key():
                offsets.append(offsets[-1] + n)
            self._offset_per_key = offsets
        return self._offset_per_key

    def to_dict(self):
        if self._dict is None:
            values = torch.split(self._values, self.length_per_key())
            lengths = self._lengths.view(len(self._keys), -1).unbind(0)
            self._dict = {k: Jagged(v, n) for k, v, n in zip(self._keys, values, lengths)}
        return self._dict

    def __getitem__(self, key):
        i, offsets = self._keys.index(key), self.offset_per_key()
        b = self.stride()
        return Jagged(self._values[offsets[i] : offsets[i + 1]], self._lengths[i * b : (i + 1) * b])

    def permute(self, order):
        parts, lengths = torch.split(self._values, self.length_per_key()), self._lengths.view(len(self._keys), -1)
        return Keyed([self._keys[i] for i in order], torch.cat([parts[i] for i in order]), lengths[list(order)].reshape(-1))


def data(batch, top, seed, keys=KEYS):
    """(values, lengths) of `keys`, each length below `top`."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, top, (batch * len(keys),), generator=g)
    return torch.randint(0, 50, (int(lengths.sum()),), generator=g), lengths


def batches(make, keys=KEYS, shapes=((3, 4), (5, 4), (4, 2), (1, 9), (7, 4), (2, 3), (4, 1), (6, 2))):
    """Argument sets of changing batch size, lengths, zeros and ones among them."""
    return [(make(list(keys), *data(b, top, i, keys)),) for i, (b, top) in enumerate(shapes)]


def synced(keys, values, lengths):
    """With the lengths of each key known in Python, as a data loader gives them."""
    return Keyed(keys, values, lengths, lengths.view(len(keys), -1).sum(1).tolist())


def fresh(keys, values, lengths):
    return Keyed(keys, values, lengths)


def use_dict(k):
    return {key: (j.values() * 2, j.lengths(), j.offsets()) for key, j in k.to_dict().items()}


def use_item(k):
    j = k["b"]
    return j.values().float().sum(), j.lengths().max(), k.offset_per_key()[-1]


def use_permute(k):
    p = k.permute((2, 0, 1))
    return p._values + 1, p._lengths, p.length_per_key()


def use_cache(k):
    first = k.length_per_key()
    return first is k.length_per_key(), k.offset_per_key()[1] - first[0], sum(first) == k._values.shape[0]


def pooled(k):
    return torch.stack([j.values().float().sum() for j in k.to_dict().values()])


# Sizes of 0 and 1 of an input are versions of their own, and so is the first version of ints that an argument holds.
@pytest.mark.parametrize("make", [fresh, synced], ids=lambda f: f.__name__)
@pytest.mark.parametrize("fn", [use_dict, use_item, use_permute, use_cache, pooled], ids=lambda f: f.__name__)
def test_keyed(fn, make):
    check(fn, *batches(make), breaks=0, captures=(1, 4))


@pytest.mark.parametrize("make", [fresh, synced], ids=lambda f: f.__name__)
def test_many_keys_need_no_version_each(make):
    shapes = [(2 + i % 3, 2 + i % 5) for i in range(6)]
    check(pooled, *batches(make, MANY, shapes), breaks=0, captures=(1, 2))


def test_one_changed_int_frees_the_others_of_the_object_but_not_those_of_a_module():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.step, self.width, self.sizes = 5, 3, [2, 4, 6]

        def forward(self, x):
            self.step += 1
            return x * self.step + self.width

    module = Counter()
    fn = compiled(module)
    for _ in range(4):
        fn(torch.ones(3))
    assert pliant.stats()["captures"] == 2
    module.width = 7  # still a constant of the entry: a new version, and the right answer
    assert fn(torch.ones(3)).tolist() == [module.step + 7.0] * 3
    assert pliant.stats()["captures"] == 3


class Pooling(torch.nn.Module):
    """One embedding table for each key, bags pooled, the results side by side."""

    def __init__(self, keys, weights=8):
        super().__init__()
        self.tables = torch.nn.ModuleDict({k: torch.nn.EmbeddingBag(50, weights, mode="sum", include_last_offset=True) for k in keys})
        self.over = torch.nn.Linear(weights * len(keys), 2)

    def forward(self, k):
        bags = [self.tables[key](j.values(), j.offsets()) for key, j in k.to_dict().items()]
        return self.over(torch.cat(bags, 1)).relu()


def test_embedding_bags():
    torch.manual_seed(0)
    check(Pooling(KEYS), *batches(synced), breaks=0, captures=(1, 6), grad=True)


# -- the layout of torch.nested ----------------------------------------------------------------------------------------
def test_nested_jagged_layout_is_right():
    def fn(values, offsets):
        nested = torch.nested.nested_tensor_from_jagged(values * 2, offsets)
        return (nested + 1).values().sum(0), nested.size(0)

    def takes(nested):
        return nested.values() + 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f, g = compiled(fn), compiled(takes)
        for lengths in ([2, 0, 3], [1, 1], [4, 2, 0, 1], [0]):
            offsets = torch.tensor([0, *lengths]).cumsum(0)
            values = torch.randn(sum(lengths), 3)
            want, got = fn(values, offsets), f(values, offsets)
            torch.testing.assert_close(got[0], want[0])
            assert want[1] == got[1]
            nested = torch.nested.nested_tensor_from_jagged(values, offsets)
            assert torch.equal(takes(nested), g(nested))
    assert pliant.stats()["fallbacks"] == 0


# -- the real thing ----------------------------------------------------------------------------------------------------
def torchrec():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("torchrec", reason="torchrec is not installed")


def kjts(keys=KEYS, **options):
    make = torchrec().KeyedJaggedTensor.from_lengths_sync
    return batches(lambda k, v, n: make(keys=k, values=v, lengths=n), keys, **options)


def kjt_dict(k):
    return [(j.values() * 2, j.lengths(), j.offsets()) for j in k.to_dict().values()]


def kjt_split(k):
    a, b = k.split([1, 2])
    return a.values() + 1, b.values() * 2, b.lengths(), b.keys(), b.offset_per_key()


def kjt_permute(k):
    p = k.permute([2, 0, 1])
    return p.values(), p.lengths(), p.keys()


def kjt_item(k):
    return k["b"].values().float().sum(), k["b"].lengths()


def kjt_padded(k):
    return k["a"].to_padded_dense(3)


def kjt_padded_to_longest(k):
    j = k["c"]
    return type(j)(values=j.values().float(), lengths=j.lengths()).to_padded_dense()


def kjt_concat(k):
    a = k["a"]
    other = type(k).from_lengths_sync(keys=["x"], values=a.values() + 1, lengths=a.lengths())
    both = type(k).concat([k, other])
    return both.values(), both.lengths(), both.keys()


REAL = [kjt_dict, kjt_split, kjt_permute, kjt_item, kjt_padded, kjt_padded_to_longest, kjt_concat]


@pytest.mark.parametrize("fn", REAL, ids=lambda f: f.__name__)
def test_keyed_jagged_tensor(fn):
    check(fn, *kjts(), breaks=0, captures=(1, 4))


def test_keyed_jagged_tensor_of_sixty_keys():
    check(lambda k: [v.values().sum() for v in k.to_dict().values()], *kjts(MANY, shapes=[(2 + i % 3, 2 + i % 5) for i in range(5)]),
          breaks=0, captures=(1, 2))  # fmt: skip


@pytest.mark.parametrize("kind", ["bags", "sequences"])
def test_embedding_collections(kind):
    rec = torchrec()
    config, collection = (
        (rec.EmbeddingBagConfig, rec.EmbeddingBagCollection) if kind == "bags" else (rec.EmbeddingConfig, rec.EmbeddingCollection)
    )
    tables = [config(name=f"t_{k}", embedding_dim=8, num_embeddings=50, feature_names=[k]) for k in KEYS]
    torch.manual_seed(0)
    model = collection(tables=tables, device=torch.device("cpu"))
    fn = compiled(copy.deepcopy(model))
    for (k,), (same,) in zip(kjts(), kjts()):
        want, got = model(k).to_dict() if kind == "bags" else model(k), fn(same).to_dict() if kind == "bags" else fn(same)
        assert list(want) == list(got)
        for a, b in zip(want.values(), got.values()):
            torch.testing.assert_close(a if kind == "bags" else a.values(), b if kind == "bags" else b.values())
    assert pliant.stats()["graph_breaks"] == 0 and pliant.stats()["captures"] <= 6
