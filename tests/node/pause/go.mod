module rebalancer.test/pause

go 1.26.0
