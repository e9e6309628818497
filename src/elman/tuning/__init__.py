"""Settings that suit some data, found by training with many: elman tune."""
