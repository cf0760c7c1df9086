"""Object detection (torchvision's Faster R-CNN) on images of many sizes."""
import random

import torch


def detect_varsize(job):
    """Two to six images a step, every one of another size. The sizes come from Python's own
    seeded dice, as when the trace was recorded."""
    import torchvision
    # largest_batch.py counts images: smaller ones, so that one more is a small step.
    least, most = (160, 480) if job.batch or job.tiny else (600, 1600)
    model = torchvision.models.detection.fasterrcnn_resnet50_fpn(
        weights=None, weights_backbone=None, min_size=least, max_size=most)
    yield
    model = model.to(job.device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    yield
    side = job.size((400, 1400), (64, 96))
    for _ in job.steps:
        images = [torch.rand(3, random.randint(*side), random.randint(*side), device=job.device)
                  for _ in range(job.batch or random.randint(2, 6))]
        targets = []
        for image in images:
            count = random.randint(1, 30)
            corner = torch.rand(count, 2, device=job.device) * 300
            extent = torch.rand(count, 2, device=job.device) * 90 + 5
            targets.append(dict(boxes=torch.cat([corner, corner + extent], 1),
                                labels=torch.randint(1, 90, (count,), device=job.device)))
            job.note(tuple(image.shape), count)
        loss = sum(model(images, targets).values())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.detach()
