from rebalancer.core.counts cimport PodNodes
from rebalancer.core.tallies cimport (
    ClassSet,
    DomainMap,
    Tally,
    add,
    clear,
    count_role,
    find,
    has_class,
    place_of,
)

cdef Py_ssize_t _ROLES

cdef class PodMove:
    cdef public Py_ssize_t pod, cls, replacement, node
    cdef public const int[::1] nodes

cdef class Rule:
    cdef public ClassSet movers
    cdef public double value
    cdef void read(self) except *
    cdef void begin(self, Py_ssize_t cls) except *
    cdef double gain_at(self, Py_ssize_t node) except? -1
    cdef void change(self, PodMove move, double[::1] out) except *

cpdef double read(Rule rule) except? -1
cpdef void write_changes(Rule rule, PodMove move, double[::1] out) except *
cpdef void write_gains(Rule rule, Py_ssize_t cls, const int[::1] nodes, double[::1] out) except *
cpdef bint moves_for(Rule rule, Py_ssize_t cls) except -1

cdef class AskedRule(Rule):
    cdef public object asked
    cdef void read(self) except *
    cdef void begin(self, Py_ssize_t cls) except *
    cdef double gain_at(self, Py_ssize_t node) except? -1
    cdef void change(self, PodMove move, double[::1] out) except *

cdef void _copy(const double[::1] values, double[::1] out) except *

cdef class RoleRule(Rule):
    cdef public list roles
    cdef public PodNodes pods
    cdef public DomainMap domains
    cdef public Tally tally
    cdef public long long hopeless
    cdef Py_ssize_t role_of(self, Py_ssize_t cls) except? -2

cdef class SeparableRule(RoleRule):
    cdef public long long total, counted
    cdef long long cover(self, long long first, long long second, long long third, long long fourth) except? -1
    cdef long long find_hopeless(self, long long pods) except? -1
    cdef void read(self) except *
    cdef long long cover_with(
        self, Py_ssize_t domain, Py_ssize_t role, long long more, Py_ssize_t other, long long others
    ) except? -1
    cdef double gain_at(self, Py_ssize_t node) except? -1
    cdef void change(self, PodMove move, double[::1] out) except *

cpdef long long cover_at(SeparableRule rule, Py_ssize_t domain) except? -1

cdef class CapRule(SeparableRule):
    cdef public long long cap
    cdef long long cover(self, long long first, long long second, long long third, long long fourth) except? -1

cdef class ConflictRule(SeparableRule):
    cdef public bint mutual
    cdef long long cover(self, long long first, long long second, long long third, long long fourth) except? -1
    cdef long long find_hopeless(self, long long pods) except? -1

cdef class AttractionRule(SeparableRule):
    cdef long long cover(self, long long first, long long second, long long third, long long fourth) except? -1

cdef class PriceRule(Rule):
    cdef public ClassSet classes
    cdef public PodNodes pods
    cdef public DomainMap nodes
    cdef public Tally tally
    cdef public const double[::1] price
    cdef public double least, paid, hopeless
    cdef void read(self) except *
    cdef double gain_at(self, Py_ssize_t node) except? -1
    cdef void change(self, PodMove move, double[::1] out) except *

cdef class PodRule(Rule):
    cdef public ClassSet classes
    cdef public const long long[::1] first, first_bad
    cdef public const int[::1] judged, home, node_of, bad
    cdef public const unsigned char[::1] mine, moved
    cdef public Tally tally
    cdef bint is_left(self, Py_ssize_t pod) except -1
    cdef void begin(self, Py_ssize_t cls) except *
    cdef double gain_at(self, Py_ssize_t node) except? -1
    cdef void change(self, PodMove move, double[::1] out) except *
    cdef bint is_bad(self, Py_ssize_t index, Py_ssize_t node) except -1
