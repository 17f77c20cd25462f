"""The peer's log is read for what the comparison rests on: did it see everything, what did it try."""

from benchmarks.scale.peer_log import parse

LOG = """\
I1121 09:44:31.871074 2010 lownodeutilization.go:231] "Node has been classified" \
plugin="LowNodeUtilization" ExtensionPoint="Balance" category="underutilized" node="no00164" \
usage={"cpu":"3","memory":"6400Mi","pods":"20"} usagePercentage={"cpu":19,"memory":10,"pods":18}
I1121 09:44:31.871241 2010 lownodeutilization.go:257] "Node is appropriately utilized" \
plugin="LowNodeUtilization" ExtensionPoint="Balance" node="no00596" \
usage={"cpu":"4","memory":"6400Mi","pods":"31"} usagePercentage={"cpu":25,"memory":10,"pods":28}
E1121 09:44:28.409838 2010 evictions.go:560] "Error evicting pod" err="pods \\"a-p0009\\" is forbidden" \
pod="ns00034/a-p0009" reason=""
E1121 09:44:28.409840 2010 topologyspreadconstraint.go:230] "eviction failed" \
err="pods \\"a-p0009\\" is forbidden" plugin="RemovePodsViolatingTopologySpreadConstraint"
E1121 09:44:29.409838 2010 evictions.go:560] "Error evicting pod" err="pods \\"a-p0009\\" is forbidden" \
pod="ns00034/a-p0009" reason=""
E1121 09:44:29.409840 2010 nodeutilization.go:300] "eviction failed" err="pods is forbidden"
"""
END = (
    'I1121 09:44:32.098031 2010 descheduler.go:252] "Number of evictions/requests" totalEvicted=0\n'
)


def test_what_it_saw_is_counted_by_node():
    log = parse(LOG + END)
    assert (log.complete, log.nodes, log.pods) == (True, 2, 51)


def test_a_pod_tried_twice_counts_once_but_both_attempts_are_reported():
    log = parse(LOG + END)
    assert log.tried == 1
    assert log.attempts == {
        "RemovePodsViolatingTopologySpreadConstraint": 1,
        "LowNodeUtilization": 1,
    }


def test_a_run_that_was_cut_off_is_not_complete():
    assert not parse(LOG).complete
