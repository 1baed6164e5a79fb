"""The doctor: rules that read a run and say what is wrong, since when, and what to look at next.

``tracks`` has the values of a signal with statistics of what was known at each row, ``case`` the signals of a run by
their meaning, ``rules`` the rules by what they look at, ``rules.toml`` their words, ``diagnose`` the findings with
their causes, ``weighing`` how sure they are, ``signs`` the word of each crucial value, ``rates`` how often each rule is
right, and ``doctor`` the diagnosis of a view.
"""
