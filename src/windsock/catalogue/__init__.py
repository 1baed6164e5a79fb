"""What each metric means: one declaration per metric, and the names that everybody gives it.

::

    from windsock.catalogue.names import recognise
    from windsock.catalogue.translate import translate

    recognise("actor/ppo_kl", source="verl").match.metric.about.en
    translate("objective/scores", to="windsock:roll", source="windsock:trl").name

``spec`` says what a metric is, one module per family declares them, ``registry`` holds them all, ``names`` reads the
vocabularies, ``translate`` goes from one to another, ``define`` takes the user's own, ``crucial`` judges the few
values that tell whether a run is alive, ``describe`` says all that is known about a name, ``page`` writes the docs.
"""
