"""Search for the largest batch that fits, with few probes. Pure arithmetic.
"""


class Search:
    """Between `low`, which fits, and `high`, which does not. Begins at `guess` and goes up or
    down from there in steps that double from `step`, then halves what is left."""

    def __init__(self, guess, step=1):
        self.guess, self.step = max(1, guess), max(1, step)
        self.low, self.high = 0, None

    def next(self):
        """The batch to try next; None when it is settled."""
        if not self.low and self.high is None:
            return self.guess
        if self.high is None:
            return self.low + self.step
        if self.high - self.low <= 1:
            return None
        if not self.low and self.high - self.step >= 1:
            return self.high - self.step
        return (self.low + self.high) // 2

    def told(self, batch, fits):
        """What a probe said. Where probes disagree the larger batch that did fit counts."""
        went_on = (fits and self.high is None) or (not fits and not self.low)
        if went_on and (self.low or self.high is not None):
            self.step *= 2
        if fits:
            self.low = max(self.low, batch)
            if self.high is not None and self.high <= self.low:
                self.high = None
        elif batch > self.low:
            self.high = min(self.high or batch, batch)

    @property
    def settled(self):
        return self.next() is None
