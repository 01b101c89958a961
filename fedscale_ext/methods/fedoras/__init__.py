"""FedorAS (Dudziak et al., TMLR 2023): a supernet trained by paths, searched, and fine-tuned."""
