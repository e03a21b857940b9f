"""One page each: a module and its template. What lies here is found by itself."""
