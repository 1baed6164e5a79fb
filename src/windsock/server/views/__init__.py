"""One module per view: each turns an open run into the JSON that the page shows."""
