"""``elman serve``: trained runs behind HTTP, with the state of a stream kept between requests."""
