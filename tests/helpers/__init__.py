"""What tests share.  Nothing here imports from a conftest."""
