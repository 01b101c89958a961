"""One job's folder: what it holds, read and checked, and its figures as rows and tables."""
