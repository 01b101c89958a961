"""Methods whose clients keep models of their own and exchange small tensors: prototypes, logits of classes, heads."""
