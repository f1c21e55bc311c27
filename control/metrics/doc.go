// Package metrics shows a running NIC to Prometheus.
//
// Collector reads the lanes' published counters and the jobs' status when it is
// scraped, and keeps nothing itself: between scrapes it costs nothing, and what it
// says is what `gradnic show` says at the same time. Names follow Prometheus'
// conventions (prometheus.io/docs/practices/naming): base units, _total for
// counters, and one name with a reason, state or place label where the values of
// the label add up.
//
// Counters of ports, lanes, jobs and workers are separate names, since the same
// frame is counted under each: a sum over one name counts every frame once.
package metrics
