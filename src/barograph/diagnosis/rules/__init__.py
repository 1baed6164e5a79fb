"""What a rule judges and what it is (`rule`), and the rules by what they look at.

`rule` knows nothing of the rules; `doctor.diagnose` imports all of them.
"""
