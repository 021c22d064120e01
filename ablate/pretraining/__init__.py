"""The thin LightningModule around encoder and objectives; optimizers, schedules, clocks."""
