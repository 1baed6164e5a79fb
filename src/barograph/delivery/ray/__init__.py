"""A run in a Ray cluster without a shared disk.

`nodes` is the side of the process that began the run, and calls Ray late; `destination` is the actor that receives,
`sending` the actors that send to it.
"""
