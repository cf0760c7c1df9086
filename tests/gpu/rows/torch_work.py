"""Rows of PyTorch at work: training, CUDA graphs, torch.compile, streams,
pinned copies.
"""
import os
import random
import sys
import threading

from . import Digest, churn, digest, must, torch_row

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../examples")


@torch_row("torch training")
def training(torch):
    """Sequences of changing length, recomputation, pinned copies on a side
    stream: the example's model."""
    sys.path.insert(0, EXAMPLES)
    from torch_finetune import Model
    model = Model(words=4096, width=512, layers=6, heads=8).cuda()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    side, rng, losses = torch.cuda.Stream(), random.Random(7), Digest()
    for _ in range(16):
        host = torch.randint(0, 4096, (rng.choice([1, 2, 4, 8]), rng.randint(64, 1200))).pin_memory()
        # Both ways: the memory of the last step's tokens goes back to the side stream.
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            tokens = host.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.add(loss)
    must(bool(torch.isfinite(loss)), "the loss is not finite")
    return dict(losses=str(losses), weights=digest(*trained), last_loss=float(loss))


@torch_row("torch graphs")
def graphs(torch):
    """Captures in pools of their own and in a shared one, replayed after other
    memory was freed and given back; a fork inside a capture; another thread
    that allocates during one; a graphed training step."""
    net = torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 1024)).cuda()
    shared, side, captured, replays = torch.cuda.graph_pool_handle(), torch.cuda.Stream(), [], Digest()
    with torch.no_grad():
        warm_up(torch, side, lambda: net(torch.ones(128, 1024, device="cuda")))
        for i, rows in enumerate((128, 512, 2048, 8192)):
            x = torch.ones(rows, 1024, device="cuda")
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=shared if i % 2 else None):
                y = net(x)
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    doubled = y * 2
                z = (y + 1).relu()
                torch.cuda.current_stream().wait_stream(side)
                z = z + doubled
            captured.append((graph, x, y, doubled, z))
            churn(torch, 12, 1500, seed=i)
        for turn in range(5):
            if turn == 2:
                torch.cuda.empty_cache()
            if turn == 3:
                del captured[0], graph, x, y, doubled, z
            for graph, x, y, doubled, z in captured:
                x.copy_(torch.randn(x.shape, device="cuda"))
                junk = torch.full((3 << 20,), float("nan"), device="cuda")
                graph.replay()
                del junk
                replays.add(y, z)
        graph = x = y = z = doubled = None
    del captured
    torch.cuda.empty_cache()
    return dict(replays=str(replays), beside=beside_a_capture(torch), graphed=graphed_training(torch))


def warm_up(torch, stream, body):
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            body()
    torch.cuda.current_stream().wait_stream(stream)


def beside_a_capture(torch):
    """A thread allocates, works and frees while this one captures."""
    go, done, sums = threading.Event(), threading.Event(), []

    def work():
        go.wait(30)
        try:
            for i in range(8):
                tensor = torch.full(((8 + i) << 20,), float(i), device="cuda")
                sums.append(float(tensor[:1024].sum()))
                del tensor
        except Exception as error:              # told below: a thread's own would be lost
            sums.append(repr(error))
        done.set()

    worker = threading.Thread(target=work)
    worker.start()
    x = torch.full((1 << 20,), 3.0, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        y = x * 2
        go.set()
        done.wait(60)
        z = y + torch.ones_like(y)
    worker.join()
    x.fill_(5.0)
    graph.replay()
    must(not any(isinstance(s, str) for s in sums), f"the other thread: {sums[-1:]}")
    replay = digest(z)
    del y, z                                    # before their graph: it owns them over cudaMallocAsync
    return dict(sums=sums, replay=replay)


def graphed_training(torch):
    net = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
    graphed = torch.cuda.make_graphed_callables(net, (torch.randn(256, 512, device="cuda"),))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for i in range(6):
        x = torch.randn(256, 512, device="cuda")
        optimizer.zero_grad(set_to_none=True)
        graphed(x).square().mean().backward()
        optimizer.step()
        churn(torch, 4, 800, seed=i)
    return digest(*net.parameters())


@torch_row("torch compile", warm=True, not_async=True)
def compiled(torch):
    """mode="reduce-overhead": graph trees, a new graph for each of several
    shapes, forward and backward, with other memory coming and going."""
    torch._dynamo.config.recompile_limit = 32
    model = torch.nn.Sequential(*(layer for _ in range(3) for layer in (torch.nn.Linear(1024, 1024), torch.nn.GELU()))).cuda()
    step = torch.compile(model, mode="reduce-overhead", dynamic=False)
    results = Digest()

    def run(batch, times):
        for _ in range(times):
            torch.compiler.cudagraph_mark_step_begin()
            x = torch.randn(batch, 1024, device="cuda")
            loss = step(x).square().mean()
            loss.backward()
            results.add(loss, *(p.grad for p in model.parameters()))
            # Loss and gradients are outputs of a graph: the next run overwrites them.
            model.zero_grad(set_to_none=True)
            del loss

    @torch.no_grad()
    def infer(batch, times):
        for _ in range(times):
            torch.compiler.cudagraph_mark_step_begin()
            results.add(step(torch.randn(batch, 1024, device="cuda")))

    shapes = (256, 1024, 4096, 640)
    for batch in shapes:
        run(batch, 4)
        churn(torch, 20, 1500, seed=batch)
        infer(batch, 4)
    # What compiling itself took depends on what is cached on disk.
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    for batch in shapes + shapes[::-1]:
        run(batch, 3)
        infer(batch, 2)
    return dict(results=str(results))


@torch_row("torch streams")
def streams(torch):
    """Sixteen streams of two priorities, ordered by events, from one thread and
    from four; memory crosses from one to the next."""
    lanes = [torch.cuda.Stream(priority=-(i % 2)) for i in range(16)]
    rng, results = random.Random(5), Digest()
    main = torch.cuda.current_stream()
    for turn in range(6):
        tensor = torch.full((rng.randint(1, 40) << 18,), float(turn + 1), device="cuda")
        chain = []
        for lane in lanes:
            lane.wait_stream(main if not chain else chain[-1][0])
            with torch.cuda.stream(lane):
                source = chain[-1][1] if chain else tensor
                chain.append((lane, source * 1.5 + 1))
        main.wait_stream(lanes[-1])
        results.add(chain[-1][1])
        # All is done before it is freed, so that torch's counts do not hang on time.
        torch.cuda.synchronize()
        del chain, source, tensor
    sums = [None] * 4

    def work(number):
        with torch.cuda.stream(torch.cuda.Stream()):
            total = 0.0
            for i in range(20):
                tensor = torch.full(((1 + (i * (number + 3)) % 7) << 20,), float(i % 5), device="cuda")
                total += float(tensor[: 1 << 16].sum())
            sums[number] = total

    # One after the other: side by side the peak of all four would hang on time.
    for number in range(4):
        worker = threading.Thread(target=work, args=(number,))
        worker.start()
        worker.join()
    return dict(results=str(results), sums=sums)


@torch_row("torch record_stream")
def record_stream(torch):
    """Memory of one stream in use on another when its last name goes."""
    side, main, results = torch.cuda.Stream(), torch.cuda.current_stream(), Digest()
    for i in range(24):
        size = (1 + i % 5) * (5 << 18)
        with torch.cuda.stream(side):
            x = torch.full((size,), float(i), device="cuda")
        main.wait_stream(side)
        torch.cuda._sleep(2_000_000)            # the use is still to come when x is freed
        y = x * 2
        x.record_stream(main)
        del x
        with torch.cuda.stream(side):
            z = torch.full((size,), -1.0, device="cuda")        # must not land on x before y was computed
        main.wait_stream(side)
        results.add(y, z)
        torch.cuda.synchronize()
        del y, z
    # Torch looks at the events of freed tensors when the next one is made.
    torch.ones(1, device="cuda")
    return dict(results=str(results))


@torch_row("torch pinned copies")
def pinned(torch):
    """Copies that do not block, both ways; the host reads after an event, and
    the device tensor is freed while the copy still runs."""
    rng, results, side = random.Random(9), Digest(), torch.cuda.Stream()
    for i in range(20):
        count = rng.randint(1, 24) << 18
        there = torch.randn(count).pin_memory().to("cuda", non_blocking=True)
        back = torch.empty(count, pin_memory=True)
        torch.cuda._sleep(100_000)
        back.copy_(there * 2, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        del there
        junk = torch.full((count,), float("nan"), device="cuda")
        event.synchronize()
        results.add(back)
        del junk
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            back.to("cuda", non_blocking=True).sqrt_()
        side.synchronize()
    host = torch.empty(8 << 20, pin_memory=True)
    host.copy_(torch.full((8 << 20,), 4.0, device="cuda"), non_blocking=True)
    torch.cuda.empty_cache()                    # cudaFree of the source: it waits for the copy
    torch.cuda.synchronize()
    results.add(host)
    return dict(results=str(results))
