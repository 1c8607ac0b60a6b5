"""Trains a small network on a GPU where there is one. Prints losses that do not depend on which."""

import io

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
data = torch.randn(32, 10)
labels = (data.sum(1) > 0).long()
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
if torch.cuda.is_available():
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total == torch.cuda.get_device_properties(0).total_memory
    model.cuda()
    assert next(model.parameters()).is_cuda
    assert torch.ones(3, device="cuda").cuda().sum().item() == 3
    torch.randn(2, device="cuda:0", generator=torch.Generator(device="cuda"))
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert model(data.to("cuda")).dtype == torch.bfloat16
    with torch.cuda.stream(torch.cuda.Stream()):
        end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0
    assert torch.cuda.max_memory_allocated() > 0
    torch.cuda.empty_cache()
    with torch.cuda.device(0), torch.cuda.device_of(data.cuda()), torch.cuda.amp.autocast(True):
        assert model(data.cuda()).dtype == torch.float16
    data.cuda().record_stream(torch.cuda.current_stream())
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] > 0
    assert "the lease of" in torch.cuda.memory_summary()
    torch.cuda.set_per_process_memory_fraction(0.5)
    assert torch.cuda.initial_seed() == 0
    assert not torch.cuda.is_current_stream_capturing()
    with torch.cuda.device(-1):
        pass
    scaler = torch.cuda.amp.GradScaler()
    scaler.scale(model(data.cuda()).sum()).backward()
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(data, labels),
    batch_size=8,
    num_workers=1,
    pin_memory=device.type == "cuda",
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(3):
    total = 0.0
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, total)
file = io.BytesIO()
torch.save(model.state_dict(), file)
file.seek(0)
model.load_state_dict(torch.load(file, map_location=device))
print(model(data.to(device)).sum().item())
