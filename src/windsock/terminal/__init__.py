"""Everything that is drawn on a terminal, with rich: on a pipe the same without colour."""
