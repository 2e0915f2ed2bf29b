"""transformers: the Trainer, with the option that compiles the model."""

# also: transformers.models.bert.modeling_bert BertSelfOutput.forward
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, PrinterCallback, Trainer, TrainingArguments


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return {"input_ids": torch.arange(4) + index, "labels": torch.tensor(index % 2)}


torch.manual_seed(0)
config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=20)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        num_train_epochs=1,
        per_device_train_batch_size=4,
        torch_compile=True,
        torch_compile_backend="aot_eager",
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        logging_strategy="no",
    )
    trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=Numbers())
    trainer.remove_callback(PrinterCallback)  # it prints the time
    result = trainer.train()
print(round(result.training_loss, 4), result.global_step)
print(torch.rand(2).tolist())
