"""Other people's protocols, one pure translator a file; `ways` lists them, `bridge` connects them."""
