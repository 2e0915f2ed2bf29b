"""lightning: a Trainer over a compiled module."""

import logging
import tempfile
import warnings

import lightning
import torch

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 1)
        self.losses = []

    def training_step(self, batch, index):
        x, y = batch
        loss = (self.linear(x) - y).square().mean()
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(8, 3), torch.randn(8, 1))
model = torch.compile(Regression(), backend="aot_eager")
with tempfile.TemporaryDirectory() as folder:
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=4))
print([round(loss.item(), 4) for loss in model.losses])
print(torch.rand(2).tolist())
