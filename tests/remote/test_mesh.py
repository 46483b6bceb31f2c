"""Tensors on a mesh: where they are, what fetches them, what they share, how errors come back."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import subprocess
import sys
import weakref

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant import events, remote
from pliant.remote import wire
from pliant.remote.worker import Worker


def heard(kind: str):
    found: list = []
    return found, events.subscribe(lambda e: found.append(e.fields), (kind,))


def test_ray_is_not_imported():
    code = "import sys, pliant; from pliant import remote; assert not [m for m in sys.modules if m == 'ray' or m.startswith('ray.')]"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 7, 9])
def test_placements(mesh, rows):
    x = torch.randn(rows, 4)
    for y in (mesh.shard(x), mesh.shard(x, 1), mesh.replicate(x), mesh[1].put(x)):
        assert torch.equal(y.cpu(), x) and y.shape == x.shape and y.dtype is x.dtype
    assert str(mesh.shard(x, -1).placement) == "Shard(1)" and str(mesh[2].put(x).placement) == "OnWorker(2)"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool, torch.complex64])
def test_dtypes_travel(mesh, dtype):
    x = (torch.randn(5, 3) * 3).to(dtype)
    assert torch.equal(mesh.shard(x.t(), 1).cpu(), x.t()) and torch.equal(mesh.replicate(x[1:]).cpu(), x[1:])


def test_large_tensors_travel_beside_the_message(mesh):
    x = torch.randn(300, 200)
    y = mesh.shard(x)
    assert torch.equal((y * 2).cpu(), x * 2)
    assert mesh.log[0].parts and len(mesh.log[0].data) < 1000


def test_what_fetches_says_so(mesh):
    x = mesh.shard(torch.ones(4, 2))
    found, stop = heard("fetch")
    assert x.sum().item() == 8 and float(x.mean()) == 1 and bool((x > 0).all()) and x.tolist() == [[1.0, 1.0]] * 4
    assert "1., 1." in repr(x) and "Shard(0)" in str(x) and x.numpy().shape == (4, 2) and f"{x.sum():.1f}" == "8.0"
    stop()
    assert [f["why"] for f in found] == ["item()", "float()", "a branch", "tolist()", "print", "print", "numpy()", "item()"]


def test_views_and_writes(mesh):
    x = torch.randn(6, 4)
    y = mesh.replicate(x.clone())
    y[1:3].mul_(2)
    assert torch.equal(y.cpu(), torch.cat([x[:1], x[1:3] * 2, x[3:]])) and y._version == 1
    z = mesh.shard(x.clone())
    z[:, 1:3].add_(1)
    z.detach()[:, 0].zero_()
    want = x.clone()
    want[:, 1:3] += 1
    want[:, 0] = 0
    assert torch.equal(z.cpu(), want)


def test_a_view_that_is_a_copy_is_never_written(mesh):
    x = mesh.shard(torch.arange(12.0).reshape(6, 2))
    view = x[1:4]
    assert torch.equal(view.cpu(), torch.arange(12.0).reshape(6, 2)[1:4])
    with pytest.raises(remote.Refused, match="copy"):
        view.add_(1)
    with pytest.raises(remote.Refused, match="copy"):
        x.add_(1)
    del view
    gc.collect()
    x.add_(1)
    assert torch.equal(x.cpu(), torch.arange(12.0).reshape(6, 2) + 1)


def test_tensor_objects_that_change_their_sizes(mesh):
    x = mesh.replicate(torch.arange(6.0).reshape(1, 2, 3))
    x.squeeze_(0)
    assert x.shape == (2, 3) and torch.equal((x + 1).cpu(), torch.arange(6.0).reshape(2, 3) + 1)


def test_gradients_operator_by_operator(mesh):
    x, w = torch.randn(5, 4), torch.randn(4, 3)
    a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
    (a @ b).relu().sum().backward()
    p, q = mesh.shard(x).requires_grad_(), mesh.replicate(w).requires_grad_()
    (p @ q).relu().sum().backward()
    assert torch.allclose(p.grad.cpu(), a.grad, atol=1e-6) and torch.allclose(q.grad.cpu(), b.grad, atol=1e-6)


def test_modules_keep_tied_parameters(mesh):
    m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    m[1].weight = m[0].weight
    mesh.replicate(m)
    assert m[0].weight is m[1].weight and isinstance(m[0].weight, torch.nn.Parameter) and m[0].weight.requires_grad
    with pytest.raises(KeyError, match="nothing"):
        mesh.place(m, {"nothing": remote.Shard(0)})
    twin = copy.deepcopy(m)
    with torch.no_grad():
        twin[0].weight.add_(1)
    assert torch.allclose(twin[1].weight.cpu(), m[0].weight.cpu() + 1, atol=1e-6)


def looked_up(table, index, total):
    rows = F.embedding(index, table)
    total.add_(rows.sum(0))
    return rows * 2


def test_errors_come_back_once_with_the_line(mesh):
    table, total = mesh.replicate(torch.randn(10, 3)), mesh.replicate(torch.zeros(3))
    f = pliant.compile(looked_up, on=mesh)
    good = f(table, mesh.shard(torch.arange(6)), total)
    before = total.cpu()
    bad = f(table, mesh.shard(torch.tensor([0, 1, 2, 3, 4, 60])), total)
    later = bad + 1
    with pytest.raises(remote.Failed, match=r"IndexError.*\n.*test_mesh.py:\d+ in looked_up"):
        mesh.synchronize()
    mesh.synchronize()  # once
    for lost in (bad, later, later * 2):
        with pytest.raises(remote.Failed, match="not computed"):
            lost.cpu()
    assert torch.equal(total.cpu(), before), "no worker may write half a step"
    assert torch.equal(good.cpu(), table.cpu()[:6] * 2)
    assert torch.equal(f(table, mesh.shard(torch.arange(6)), total).cpu(), good.cpu())


def test_the_end_of_a_with_tells_what_failed():
    with pytest.raises(IndexError), remote.mesh(2, transport="threads", timeout=30) as mesh:
        F.embedding(mesh.shard(torch.tensor([0, 60])), mesh.replicate(torch.randn(10, 3)))
    with remote.mesh(2, transport="threads", timeout=30) as mesh:
        x = mesh.shard(torch.ones(3)) + 1
    for use in (x.cpu, lambda: x + 1, lambda: repr(x), lambda: mesh.shard(torch.ones(3)), lambda: pliant.compile(F.relu, on=mesh)(x)):
        with pytest.raises(remote.RemoteError, match="closed"):
            use()


def caught_at_a_fetch(table, index, total):
    total.add_(1)
    try:
        return F.embedding(index, table).sum().item()
    except IndexError:
        return "caught"


RAISING = {
    "linalg": (torch.linalg.inv, torch.linalg.LinAlgError),
    "assertion": (lambda x: torch._assert_async(x.sum() > 0), RuntimeError),
    "class": (lambda x: F.nll_loss(x, torch.tensor([0, 1, 9])), IndexError),
    "gather": (lambda x: x.gather(0, x.long() + 5), RuntimeError),
    "division": (lambda x: x.long() // x.long(), RuntimeError),
    "take": (lambda x: x.take(torch.tensor([99])), IndexError),
}


@pytest.mark.parametrize("name", RAISING)
def test_errors_are_of_the_class_that_one_process_raises(mesh, name):
    f, kind = RAISING[name]
    with pytest.raises(kind):
        f(torch.zeros(3, 3))
    for there in (f, pliant.compile(f, on=mesh)):
        lost = there(mesh.shard(torch.zeros(3, 3)))
        with pytest.raises(kind, match=r"test_mesh.py:\d+ in <lambda>|linalg") as told:
            mesh.synchronize()
        assert isinstance(told.value, remote.Failed) and type(pickle.loads(pickle.dumps(told.value))) is type(told.value)
        mesh.synchronize()
        if lost is not None:
            with pytest.raises(kind, match="not computed"):
                lost.cpu()


def test_handlers_around_a_fetch(mesh):
    """They hear of errors in compiled functions, too, once, and what was written stays."""
    table, total = mesh.replicate(torch.randn(10, 3)), mesh.replicate(torch.zeros(()))
    for i, f in enumerate((caught_at_a_fetch, pliant.compile(caught_at_a_fetch, on=mesh))):
        assert f(table, mesh.shard(torch.tensor([0, 60])), total) == "caught"
        mesh.synchronize()
        assert total.item() == i + 1
    read = pliant.compile(lambda x: x.sum().item(), on=mesh)
    F.embedding(mesh.shard(torch.tensor([0, 60])), table)
    with pytest.raises(IndexError):  # of what came before
        read(table)
    assert isinstance(read(table), float)


def branches(x):
    y = x * 2
    if y.sum() > 3:
        return y + 1
    return y - 1


def test_a_fetch_tells_of_what_failed_before(mesh):
    """What is read may be older than a write that was left out: whoever reads is told first, once."""
    table, total, other = mesh.replicate(torch.randn(10, 3)), mesh.replicate(torch.zeros(3)), mesh.replicate(torch.ones(2))
    f = pliant.compile(looked_up, on=mesh)
    f(table, mesh.shard(torch.tensor([0, 60])), total)
    with pytest.raises(remote.Failed, match="IndexError"):
        other.cpu()
    assert torch.equal(other.cpu(), torch.ones(2)) and torch.equal(total.cpu(), torch.zeros(3))


def test_modules_that_are_placed_one_by_one_keep_what_they_share(mesh):
    """Parameters stay the objects that they are: for another module, and for an optimizer that was made before."""
    torch.manual_seed(0)
    embedding, head = torch.nn.Embedding(9, 6), torch.nn.Linear(6, 9, bias=False)
    head.weight = embedding.weight
    here = copy.deepcopy(torch.nn.ModuleList([embedding, head]))
    optimizer = torch.optim.AdamW(embedding.parameters(), lr=0.1)
    mesh.replicate(embedding)
    mesh.replicate(head)
    assert head.weight is embedding.weight and optimizer.param_groups[0]["params"][0] is head.weight

    def trainer(table, out, optimizer):
        def step(ids):
            loss = F.cross_entropy(out(table(ids)), ids)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step

    step, ref = pliant.compile(trainer(embedding, head, optimizer), on=mesh), trainer(*here, torch.optim.AdamW(here.parameters(), lr=0.1))
    for n in (4, 5, 3):
        ids = torch.arange(n)
        assert torch.allclose(step(mesh.shard(ids)).cpu(), ref(ids), rtol=1e-5)
    mesh.place(head, {"weight": remote.Shard(0)})
    assert str(embedding.weight.placement) == "Shard(0)" and torch.allclose(embedding.weight.cpu(), here[0].weight, rtol=1e-4, atol=1e-5)


def test_a_gradient_goes_with_its_parameter(mesh):
    m = torch.nn.Linear(3, 2)
    m(torch.ones(4, 3)).sum().backward()
    want = m.weight.grad.clone()
    mesh.replicate(m)
    assert torch.equal(m.weight.grad.cpu(), want) and m.weight.requires_grad


def test_a_parameter_that_is_known_by_a_weak_reference_is_not_put_in_place(mesh):
    m = torch.nn.Linear(3, 2)
    known = weakref.ref(m.weight)
    with pytest.raises(remote.RemoteError, match=r"weight .* copy"):
        mesh.replicate(m)
    assert mesh.replicate(copy.deepcopy(m)).weight.requires_grad and known() is m.weight


@pytest.mark.parametrize("backend", ["native", "aten", "eager"])
def test_a_function_compiled_for_no_mesh(mesh, backend):
    """Its machine code would look for elements that are not here: it runs operator by operator."""
    m = torch.nn.Linear(3, 2)
    f = pliant.compile(lambda x: (m(x) * 2).relu(), backend=backend, strict=False)
    x = torch.randn(4, 3)
    want = f(x)
    with pytest.warns(RuntimeWarning, match="on=mesh"):
        assert torch.allclose(f(mesh.shard(x)).cpu(), want, atol=1e-6)
    mesh.replicate(m)
    assert torch.allclose(f(x).cpu(), want, atol=1e-6) and torch.allclose(f(mesh.shard(x)).cpu(), want, atol=1e-6)
    with pytest.raises(pliant.PliantError, match="on=mesh"):
        pliant.export(m, (x,))


def test_what_depends_on_values_is_computed_here(mesh):
    x = torch.tensor([[0.0, 2, 0], [3, 0, 4]])
    y, z = mesh.shard(x), mesh[1].put(x)
    found, stop = heard("fetch")
    assert torch.allclose(y, x) and torch.equal(y, mesh.replicate(x)) and not torch.equal(y, z + 1)
    stop()
    assert "depends on values" in found[0]["why"]
    assert torch.equal(y.nonzero().cpu(), x.nonzero()) and torch.equal(torch.unique(y).cpu(), torch.unique(x))
    assert str(z.nonzero().placement) == "OnWorker(1)" and str(y[y > 0].placement) == "Replicate()"
    p, q = y.clone().requires_grad_(), x.clone().requires_grad_()
    (p[p > 0] ** 2).sum().backward()
    (q[q > 0] ** 2).sum().backward()
    assert torch.equal(p.grad.cpu(), q.grad)


def test_graph_breaks_run_on_the_controller(mesh):
    f = pliant.compile(branches, on=mesh)
    x = torch.ones(4, 2)
    assert torch.equal(f(mesh.shard(x)).cpu(), x * 2 + 1) and torch.equal(f(mesh.shard(-x)).cpu(), -x * 2 - 1)


def test_one_message_a_step_and_no_program_twice(mesh):
    w = mesh.replicate(torch.randn(4, 4))
    f = pliant.compile(lambda x: (x @ w).relu().sum(), on=mesh)
    for n in (5, 6, 7, 9):
        out = f(mesh.shard(torch.randn(n, 4)))
    mesh.synchronize()
    captures, programs = pliant.stats()["captures"], mesh.counts["programs"]
    for n in (8, 11, 6, 13):
        sent = mesh.counts["messages"]
        x = torch.randn(n, 4)
        out = f(mesh.shard(x))
        assert torch.allclose(out.cpu(), (x @ w.cpu()).relu().sum(), rtol=1e-4, atol=1e-6)
        assert mesh.counts["messages"] - sent <= 2 * len(mesh)  # the step with its fetch, and that of `w`
    assert pliant.stats()["captures"] == captures and mesh.counts["programs"] == programs


def test_handles_are_counted(mesh):
    xs = [mesh.shard(torch.randn(4)) for _ in range(10)]
    ys = [x * 2 for x in xs]
    assert mesh.stats()["handles"] == 20
    del xs, ys
    gc.collect()
    found = mesh.stats()
    assert found["handles"] == 0 and found["leaked"] == 0 and all(w["tensors"] == 0 for w in found["workers"])


def test_random_numbers_follow_the_seed_of_the_controller(mesh):
    x = mesh.shard(torch.ones(64, 8))
    f = pliant.compile(lambda t: F.dropout(t, 0.5, True), on=mesh)

    def draw():
        torch.manual_seed(5)
        return f(x).cpu()

    first = draw()
    assert torch.equal(first, draw()) and 0.3 < (first == 0).float().mean() < 0.7
    r = f(mesh.replicate(torch.ones(64, 8)))
    assert torch.equal(r.cpu(), r.cpu()) and len(mesh.flying) <= mesh.window


def test_two_meshes_do_not_mix(mesh):
    with remote.mesh(2, transport="threads", timeout=30) as other:
        with pytest.raises(remote.RemoteError, match="two meshes"):
            mesh.replicate(torch.ones(2)) + other.replicate(torch.ones(2))


def test_arguments_are_checked(mesh):
    for wrong in (0, -1, "2", 1.5):
        with pytest.raises(ValueError, match="workers"):
            remote.mesh(wrong, transport="threads")
    with pytest.raises(ValueError, match="transport"):
        remote.mesh(2, transport="smoke")
    with pytest.raises(TypeError, match="mesh"):
        pliant.compile(branches, on=3)
    with pytest.raises(ValueError, match="either"):
        pliant.compile(branches, on=mesh, backend="aten")
    with pytest.raises(remote.RemoteError, match="pickled"):
        import pickle

        pickle.dumps(mesh.replicate(torch.ones(1)))


# -- the wire ---------------------------------------------------------------------------------------------------------------
def test_messages_come_back():
    tensors = [torch.randn(3, 2).t(), torch.tensor(7), torch.empty(0, 4), torch.tensor([True, False])]
    seq, commands, found = wire.decode(wire.encode(9, [["free", [1, 2]]], tensors))
    assert (seq, commands) == (9, [["free", [1, 2]]])
    assert all(torch.equal(a, b) and a.dtype is b.dtype for a, b in zip(tensors, found, strict=True))


def test_messages_of_others_are_refused():
    data = wire.encode(0, [], [torch.ones(4)])
    for wrong in (data.replace(b"REMOTE 2", b"REMOTE 1", 1), b"", b"\x80\x04pickle", data[:25], data[:-8], data.replace(b"F32", b"F99")):
        with pytest.raises(wire.WireError):
            wire.decode(wrong)


def test_a_worker_takes_no_program_that_reaches_outside():
    worker = Worker(0, 1)
    text = "pliant program 1: f, form aten\n%0: u8 [4] strides [1] = aten.from_file.default('/etc/passwd', False, 4)\noutput user r0 %0\n"
    reply = wire.decode(worker.step(wire.encode(0, [["load", "x", text, [], []], ["call", "x", [], [1], [], None, None, False]])))
    assert "FormatError" in json.dumps(reply[1])


@pytest.mark.parametrize("command", [
    ["eval", "1"], ["__init__", 0, 1], ["step", ""], ["join", 0], ["load", "y", "import os", [], []],
    ["load", "y", "\x80\x04cos\nsystem\n", [], []], ["load", "y", "import os"],
    ["call", "no such program", [], [1], [], None, None, False], ["get", {}, None], [], 7, ["put", 1, 3, None, []],
])  # fmt: skip
def test_a_worker_takes_programs_and_tensors_alone(command):
    """Whatever else it is sent is an error of that command: it goes on."""
    worker = Worker(0, 1)
    run = [["call", "y", [], [1], [], None, None, False]] if isinstance(command, list) and command[:1] == ["load"] and command[3:] else []
    _, (answers, errors), _ = wire.decode(worker.step(wire.encode(0, [command, *run])))
    assert len(errors) == 1 and not answers and not worker.programs
    assert not [t for t in worker.tensors.values() if isinstance(t, torch.Tensor)]
    assert not wire.decode(worker.step(wire.encode(1, [["put", 5, 0, None, []]], [torch.ones(2)])))[1][1]


def test_gpus_are_refused(mesh):
    with pytest.raises(remote.RemoteError, match="GPUs"):
        remote.mesh(1, options={"num_gpus": 1})
    with pytest.raises(remote.RemoteError, match="meta"):
        mesh.replicate(torch.ones(2, device="meta"))


# -- checkpoints, timeline, recovery -----------------------------------------------------------------------------------------
def test_checkpoints_on_another_number_of_workers(mesh, tmp_path):
    m = mesh.place(torch.nn.Linear(5, 4), {"weight": remote.Shard(0)})
    opt = torch.optim.AdamW(m.parameters(), lr=0.1)
    m(mesh.replicate(torch.ones(2, 5))).sum().backward()
    opt.step()
    mesh.checkpoint(tmp_path / "c", {"model": m, "optimizer": opt})
    with remote.mesh(2, transport="threads", timeout=30) as other:
        n = other.place(torch.nn.Linear(5, 4), {"weight": remote.Shard(1)})
        o = torch.optim.AdamW(n.parameters(), lr=0.1)
        n(other.replicate(torch.ones(2, 5))).sum().backward()
        o.step()
        other.restore(tmp_path / "c", {"model": n, "optimizer": o})
        assert torch.equal(n.weight.cpu(), m.weight.cpu())
        assert torch.equal(o.state[n.bias]["exp_avg"].cpu(), opt.state[m.bias]["exp_avg"].cpu())
        with pytest.raises(remote.RemoteError, match="other tensors"):
            other.restore(tmp_path / "c", {"model": n})


def test_the_timeline_has_everybody(mesh, tmp_path):
    with remote.timeline(mesh, tmp_path / "t.json"):
        (mesh.shard(torch.ones(4)) + 1).cpu()
    found = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {e["args"]["name"] for e in found if e["ph"] == "M"} == {"controller", "worker 0", "worker 1", "worker 2"}
    spans = [e for e in found if e["ph"] == "X"]
    assert {e["pid"] for e in spans if e["name"].startswith("call")} == {1, 2, 3} and any(e["name"] == "wait" for e in spans)
    assert all(e["dur"] >= 0 and e["ts"] > 0 and {"tid", "name"} <= e.keys() for e in spans)
    sent = min(e["ts"] for e in spans if e["name"] == "send")
    assert all(e["ts"] + e["dur"] >= sent for e in spans if e["name"].startswith("call")), "no worker runs what was not sent yet"


def test_who_waits_for_whom(mesh, tmp_path):
    """One worker is late: the others wait for it, in collectives and for what it sends."""
    x, w = mesh.shard(torch.ones(9)), mesh[1].put(torch.ones(3))
    total = pliant.compile(lambda t: t.sum() * t, on=mesh)
    total(x).cpu()
    before = [worker["waited"] for worker in mesh.stats()["workers"]]
    with remote.timeline(mesh, tmp_path / "t.json"):
        mesh.issue(["sleep", 0.4, 1])
        assert total(x).sum().item() == 81
        mesh.issue(["sleep", 0.4, 1])
        assert (w.to_worker(2) + 1).sum().item() == 6
    found = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    longest = lambda pid, name: max((e["dur"] / 1e6 for e in found if e["ph"] == "X" and e["pid"] == pid and e["name"] == name), default=0)
    assert longest(1, "all_reduce") > 0.3 > longest(2, "all_reduce") and longest(3, "all_reduce") > 0.3
    assert longest(3, "receive 1") > 0.3
    waited = [worker["waited"] - then for worker, then in zip(mesh.stats()["workers"], before, strict=True)]
    assert waited[1] < 0.3 < waited[0] and waited[2] > 0.6


def test_counts_of_the_mesh(mesh):
    x = mesh.shard(torch.ones(4, 2))
    f = pliant.compile(lambda t: (t * 2).sum(), on=mesh)
    assert f(x).item() == 16 and f(x).item() == 16
    found = pliant.stats(on=mesh)["mesh"]
    assert found["calls"] == 2 and found["programs"] == 1 and found["fetched_bytes"] == 8 and found["handles"] == 1
    assert found["messages"] == 3 * sum(1 for _ in mesh.log) and found["collectives"] == 2
    for worker in found["workers"]:
        assert worker["calls"] == 2 and worker["programs"] == 1 and worker["tensors"] == 1
        assert worker["bytes"] * 3 == found["bytes"] and worker["messages"] * 3 == found["messages"]


@pytest.mark.parametrize("lineage", [512, 3])
def test_what_a_lost_worker_had_is_made_again(lineage):
    """A worker that begins anew, in the middle: the numbers are those of a mesh that lost nobody."""
    with remote.mesh(3, transport="threads", timeout=30, lineage=lineage) as mesh:
        x, w = mesh.shard(torch.arange(8.0)), mesh.replicate(torch.ones(8))
        s, t = torch.arange(8.0), torch.ones(8)
        for i in range(8):
            w.add_(x * i)
            t.add_(s * i)
            x, s = x + 1, s + 1
            mesh.flush()
            if i in (2, 6):
                mesh.recover(remote.transport.Dead(i % 3, "a test"))
        assert torch.equal(w.cpu(), t) and torch.equal(x.cpu(), s) and mesh.counts["recoveries"] == 2


# -- serving -------------------------------------------------------------------------------------------------------------------
class Mean(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, x, lengths):
        mask = torch.arange(x.shape[1])[None] < lengths[:, None]
        return self.scale * (x * mask[..., None]).sum(1) / lengths[:, None]


def test_serving_batches_by_length(mesh):
    server = remote.Server(mesh, Mean, batch=4, wait=0.01, queue=8)
    requests = [torch.randn(1 + i % 5, 3) for i in range(24)]
    answers = [server.submit(r) for r in requests]
    for r, a in zip(requests, answers, strict=True):
        assert torch.allclose(a.result(60).detach(), 2 * r.mean(0), atol=1e-5)
    server.close()
    assert server.counts["requests"] == 24 and server.counts["batches"] < 24
    with pytest.raises(remote.RemoteError, match="closed"):
        server.submit(requests[0])


def test_exported_programs_run_on_a_mesh(mesh):
    """Weights once, then one message a call; what does not fit is refused here; what a mesh cannot do is, too."""
    torch.manual_seed(0)
    m = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.GELU(), torch.nn.Linear(5, 2))
    p = pliant.export(m, (torch.randn(4, 3),))
    for put, on in ((mesh.replicate, mesh.shard), (mesh[1].put, mesh[1].put)):
        run = put(p)
        for rows in (4, 1, 7, 2):
            x = torch.randn(rows, 3)
            before = mesh.counts["programs"]
            y = run(on(x))
            assert torch.allclose(y.cpu(), m(x), atol=1e-6) and y.placement == on(x).placement
            assert mesh.counts["programs"] - before <= (rows == 4)
        assert torch.allclose(run(on(x).t().clone().t()).cpu(), m(x), atol=1e-6) and torch.allclose(run(x).cpu(), m(x), atol=1e-6)
        with pytest.raises(ValueError, match="size"):
            run(on(torch.randn(4, 2)))
    counted = torch.nn.BatchNorm1d(3)
    with pytest.raises(remote.RemoteError, match="results alone"):
        mesh.replicate(pliant.export(counted, (torch.randn(4, 3),)))


@pytest.mark.parametrize("how", ["module", "program"])
def test_a_pool_of_a_module_or_a_program(mesh, how):
    model = Mean() if how == "module" else pliant.export(Mean().eval(), (torch.randn(2, 4, 3), torch.tensor([4, 2])))
    server = mesh.serve(model, batch=4, queue=3)
    requests = [torch.randn(1 + i % 5, 3) for i in range(13)]
    answers = [server.submit(r) for r in requests]
    for r, a in zip(requests, answers, strict=True):
        assert torch.allclose(a.result(60).detach(), 2 * r.mean(0), atol=1e-5)
    server.close()


BEGINNERS = {
    "a row to a row": lambda x: (x.__setitem__(2, x[3]), x.mul_(2))[1],
    "bits": lambda x: (x.view(torch.int64), x.view(torch.int64).sum(0)),
    "norms of nothing": lambda x: (torch.linalg.vector_norm(x[:0], float("inf"), -1), F.mse_loss(x[:0], x[:0] * 2)),
    "an array": lambda x: torch.as_tensor((x + 1).detach().numpy().sum()),
    "a complex number": lambda x: torch.complex(x.float(), x.float()) * 2j,
    "one number rolled": lambda x: x.sum().roll(1, 0),
    "an array of an input": lambda x: torch.as_tensor(x.numpy() * 2),
    "numbers": lambda x: torch.tensor(x[0].tolist() + x.to(torch.complex128)[1].tolist()),
    "positions": lambda x: (x > 0).nonzero(),
    "a conjugate": lambda x: (lambda z: (z == z.conj(), z @ z.mH, z.conj().imag * 2, z.conj()))(torch.complex(x, x.flip(0))),
    "complex numbers": lambda x: torch.complex(x, x).mul_(1j) + complex(1, -0.0),
    "turned in place": lambda x: x.clone().transpose_(0, 1) + x.clone().swapaxes_(0, 1),
    "one row for many": lambda x: x.unsqueeze(0).expand(2, *x.shape).unflatten(-1, (1, x.shape[-1])).unsqueeze(0).squeeze(0),
    "a negative view": lambda x: (torch._neg_view(x).sum(0), torch._neg_view(x)),
}


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers_are_put_in_place(mesh, kind):
    """They hold weak references to their weights, and are trained by operators of our own."""
    torch.manual_seed(0)
    net = kind(4, 5, num_layers=2, batch_first=True)
    twin, x = mesh.replicate(copy.deepcopy(net)), torch.randn(5, 3, 4)
    assert [w() for w in twin._flat_weight_refs] == list(twin.parameters()) == twin._flat_weights
    net(x)[0].square().sum().backward()

    def step(x):
        out = twin(x)[0]
        out.square().sum().backward()
        return out

    assert torch.allclose(pliant.compile(step, on=mesh)(mesh.shard(x)).cpu(), net(x)[0], atol=1e-6)
    for p, q in zip(net.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(p.grad, q.grad.cpu(), atol=1e-5)


def test_results_of_inference_mode(mesh):
    net = torch.nn.Linear(4, 3)
    x, twin = torch.randn(5, 4), mesh.replicate(copy.deepcopy(net))
    y = pliant.compile(torch.inference_mode()(lambda x: twin(x).softmax(-1)), on=mesh)(mesh.shard(x))
    assert type(y) is remote.RemoteTensor and y.is_inference() and y.placement == remote.Shard(0)
    assert torch.allclose((y + 1).cpu(), net(x).softmax(-1) + 1)


def test_complex128_travels(mesh):
    z, w = torch.randn(7, 4, dtype=torch.complex128), torch.randn(4, 2, dtype=torch.complex128)
    here = z.clone().requires_grad_(), w.clone().requires_grad_()
    out = (here[0] @ here[1].conj()).exp()
    out.abs().square().sum().backward()

    def step(z, w):
        out = (z @ w.conj()).exp()
        out.abs().square().sum().backward()
        return out

    for f in (step, pliant.compile(step, on=mesh)):
        for put in (mesh.replicate, mesh.shard, mesh[1].put):
            there = put(z).requires_grad_(), (mesh[1].put if put == mesh[1].put else mesh.replicate)(w.clone().requires_grad_())
            assert there[1].requires_grad and torch.allclose(f(*there).cpu(), out)
            assert all(torch.allclose(a.grad, b.grad.cpu()) for a, b in zip(here, there, strict=True))
    assert torch.equal(mesh.shard(z.conj()).to_worker(2).cpu(), z.conj())


@pytest.mark.parametrize("name", BEGINNERS)
def test_what_beginners_write(mesh, name):
    """As in one process, compiled and not, errors included: what raises there raises here."""
    fn, x = BEGINNERS[name], torch.linspace(-1, 2, 15).sin().reshape(5, 3).double()
    parts = lambda out: [t.cpu() for t in (out if isinstance(out, tuple) else (out,))]
    for put in (mesh.replicate, *[mesh.shard] * (name != "a row to a row")):  # which is refused: a row of pieces is a copy
        for there in (fn, pliant.compile(fn, on=mesh)):
            try:
                want = parts(fn(x.clone()))
            except IndexError:
                with pytest.raises(remote.Failed, match="IndexError"):
                    parts(there(put(x.clone())))
                continue
            for a, b in zip(want, parts(there(put(x.clone()))), strict=True):
                assert a.dtype is b.dtype and torch.allclose(a, b, equal_nan=True)


def test_many_gradients_are_reduced_in_buckets(mesh, monkeypatch):
    """None larger than it must be, the same for all workers, those that fail among them."""
    from pliant.remote import collectives

    monkeypatch.setattr(collectives, "BUCKET", 100)
    assert collectives.buckets([40, 40, 40, 400, 8]) == [slice(0, 2), slice(2, 3), slice(3, 4), slice(4, 5)]
    assert collectives.buckets([]) == []
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    x, twin = torch.linspace(-1, 1, 15).reshape(5, 3), copy.deepcopy(net)
    net(x).square().mean().backward()
    mesh.replicate(twin)

    def step(x, i):
        twin(x[i]).square().mean().backward()

    step = pliant.compile(step, on=mesh)
    step(mesh.shard(x), torch.arange(5))
    for p, q in zip(net.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(p.grad, q.grad.cpu(), atol=1e-6)
