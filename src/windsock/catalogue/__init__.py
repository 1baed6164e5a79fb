"""The catalogue: the meaning of each metric, and its names in every framework.

::

    from windsock.catalogue.names import recognise
    from windsock.catalogue.translate import translate

    recognise("actor/ppo_kl", source="verl").match.metric.about.en
    translate("objective/scores", to="windsock:roll", source="windsock:trl").name

The metrics are declared in the text files of ``data``; its README explains them. ``declarations`` reads these files,
``source_files`` those of the frameworks, ``compiled`` loads what is built from them, ``spec`` has the records.
``registry`` has all metrics, ``names`` finds what a name can mean, ``sources`` has the frameworks, and ``resolution``
decides what the names of a run mean, with ``evidence`` (its other names and its config) and ``values``. ``translate``
translates names, ``describe`` explains them, ``define`` adds a user's own. ``headline`` selects the values that an
overview shows, ``crucial`` lists the crucial ones, ``reference_pages`` writes docs/metrics*.md.
"""
