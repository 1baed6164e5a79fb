"""Where the time and the memory of a step go: phases, devices, throughput, and a sampler of the machine.

``phases`` is what a loop enters and leaves, ``probe`` writes it down and adds it up (``steps``), ``memory`` and
``devices`` read what is held, ``report`` and ``trace`` make something to look at of the spans read back.
"""
