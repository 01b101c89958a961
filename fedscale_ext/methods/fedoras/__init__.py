"""FedorAS (Dudziak, Laskaridis, Fernandez-Marques, 2022): a supernet trained by paths, searched, and fine-tuned."""
