"""The mends that keep machines rest on, each as the text that undoes it."""

from tests.storm.mends import Mend

MENDS: tuple[Mend, ...] = ()
