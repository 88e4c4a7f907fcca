"""The routes: what is answered over HTTP, to whom, and the pages."""
