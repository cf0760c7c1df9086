"""Rows of libraries that bring CUDA code of their own, of which few machines
have all: each runs where it is named.
"""
import random

from . import Digest, digest, must, row, torch_row


@row("XGBoost", profiles=("auto", "poison"), named=True)
def xgboost():
    """Trees over tables of several sizes, from the host and from the device."""
    import cupy
    import numpy
    import xgboost
    rng, results = numpy.random.default_rng(11), []
    for rows, columns in ((20_000, 40), (300_000, 24), (60_000, 120)):
        x = rng.standard_normal((rows, columns), dtype=numpy.float32)
        y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(numpy.float32)
        settings = dict(device="cuda", tree_method="hist", objective="binary:logistic", max_depth=7, seed=3)
        table = xgboost.QuantileDMatrix(cupy.asarray(x), y)
        booster = xgboost.train(settings, table, 20)
        other = xgboost.train(settings, xgboost.DMatrix(x, y), 5)
        told = booster.predict(table)
        must(((told > 0.5) == (y > 0.5)).mean() > 0.75, "the trees learned nothing")
        results.append([digest(told), digest(numpy.frombuffer(booster.save_raw(), numpy.uint8)),
                        digest(cupy.asnumpy(other.inplace_predict(cupy.asarray(x))))])
    return dict(results=dict(tables=results))


@torch_row("bitsandbytes", named=True)
def bitsandbytes(torch):
    """Adapters on four-bit weights, and optimizers of eight bits, one of them
    with its state in managed memory."""
    import bitsandbytes
    results, rng = Digest(), random.Random(5)
    for optimizer_of in (bitsandbytes.optim.AdamW8bit, bitsandbytes.optim.PagedAdamW8bit, bitsandbytes.optim.PagedAdamW32bit):
        base = [bitsandbytes.nn.Linear4bit(2048, 2048, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4") for _ in range(4)]
        for layer in base:
            layer.cuda()                    # packs the weights
        down = [torch.nn.Parameter(torch.randn(2048, 64, device="cuda") * 0.01) for _ in base]
        up = [torch.nn.Parameter(torch.zeros(64, 2048, device="cuda")) for _ in base]
        optimizer = optimizer_of([*down, *up], lr=1e-3)
        for _ in range(10):
            x = torch.randn(rng.choice([64, 512, 3000]), 2048, device="cuda")
            y = x
            for layer, a, b in zip(base, down, up):
                y = torch.nn.functional.gelu(layer(y.bfloat16()).float() + y @ a @ b) + y
            loss = (y - 1).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            results.add(loss)
        must(bool(torch.isfinite(loss)), "the loss is not finite")
        results.add(*down, *up)
    return dict(losses_and_adapters=str(results))


@torch_row("torchao", named=True)
def torchao(torch):
    """A model whose weights are packed to eight bits, whole and by rows."""
    from torchao.quantization import Float8WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_
    results = {}
    for settings in (Int8WeightOnlyConfig(), Int8DynamicActivationInt8WeightConfig(), Float8WeightOnlyConfig()):
        torch.manual_seed(3)
        net = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(6))).cuda().bfloat16().eval()
        quantize_(net, settings)
        answers = Digest()
        with torch.no_grad():
            for rows in (32, 1000, 5000, 70):
                answers.add(net(torch.randn(rows, 2048, device="cuda", dtype=torch.bfloat16)).float())
        results[type(settings).__name__] = str(answers)
    return results


@torch_row("Liger kernels", named=True)
def liger(torch):
    """Fused losses and norms, as language models are trained with."""
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss, LigerLayerNorm, LigerRMSNorm
    norms = torch.nn.Sequential(LigerRMSNorm(1024), LigerLayerNorm(1024)).cuda()
    head = torch.nn.Linear(1024, 32_000, bias=False, device="cuda")
    fused, results, rng = LigerFusedLinearCrossEntropyLoss(), Digest(), random.Random(9)
    optimizer = torch.optim.AdamW([*norms.parameters(), *head.parameters()], lr=1e-3)
    for _ in range(10):
        rows = rng.choice([256, 2000, 6000])
        x, wanted = torch.randn(rows, 1024, device="cuda"), torch.randint(0, 32_000, (rows,), device="cuda")
        loss = fused(head.weight, norms(x), wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        results.add(loss)
    must(bool(torch.isfinite(loss)), "the loss is not finite")
    return dict(losses=str(results), head=digest(head.weight))


@row("OpenMM", profiles=("auto", "poison"), named=True)
def openmm():
    """Molecular dynamics of boxes of several sizes, in double precision and
    with forces that are summed alike each time; energies are not."""
    import numpy
    import openmm
    from openmm import unit
    openmm.Platform.loadPluginsFromDirectory(openmm.Platform.getDefaultPluginsDirectory())
    platform, results = openmm.Platform.getPlatformByName("CUDA"), []
    for side in (12, 24, 17):
        system, forces = openmm.System(), openmm.NonbondedForce()
        forces.setNonbondedMethod(openmm.NonbondedForce.PME)
        forces.setCutoffDistance(1.0)
        grid = numpy.stack(numpy.meshgrid(*[numpy.arange(side)] * 3), -1).reshape(-1, 3) * 0.4
        for i in range(len(grid)):
            system.addParticle(39.9)
            forces.addParticle(0.1 if i % 2 else -0.1, 0.34, 0.996)
        length = side * 0.4
        system.setDefaultPeriodicBoxVectors([length, 0, 0], [0, length, 0], [0, 0, length])
        system.addForce(forces)
        integrator = openmm.VerletIntegrator(0.002)
        context = openmm.Context(system, integrator, platform, dict(Precision="double", DeterministicForces="true"))
        context.setPositions(grid)
        context.setVelocitiesToTemperature(100, 7)
        integrator.step(300)
        state = context.getState(getPositions=True, getEnergy=True)
        energy = state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)
        must(numpy.isfinite(energy), "the energy is not finite")
        results.append([digest(state.getPositions(asNumpy=True)._value), round(energy, 6)])
        del context
    return dict(results=dict(boxes=results))


@row("Dr.Jit", profiles=("auto", "poison"), named=True)
def drjit():
    """Arrays of many sizes through kernels that it makes itself, its own cache
    of memory emptied from time to time."""
    import drjit as dr
    import numpy
    from drjit.cuda import Float, UInt32
    rng, results = random.Random(13), Digest()
    for turn in range(60):
        n = rng.randint(1, 6_000_000)
        index = dr.arange(UInt32, n)
        x = Float(index) * 0.001
        y = dr.sqrt(dr.fma(x, x, 1.0)) + dr.gather(Float, x, n - 1 - index)
        total = dr.cumsum(UInt32(index & 7))
        dr.eval(y, total)
        results.add(numpy.array(y), numpy.array(total))
        if turn % 15 == 14:
            dr.sync_thread()
            dr.flush_malloc_cache()
    return dict(results=dict(arrays=str(results)))
