"""Progress lines."""
class Progress:
    def __init__(self, stream, *, clock, form):
        self.o = stream if form != "quiet" else None
    def __getattr__(self, n):
        return lambda *a, **k: self.o and self.o.write(f"{n} {[getattr(x, 'ref', x) for x in a]} {k}\n")
