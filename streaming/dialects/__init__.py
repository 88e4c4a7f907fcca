"""Other people's protocols, one pure translator a file; `ways` lists them, `sockets.bridge` connects them."""
