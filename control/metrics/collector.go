package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"gradnic/control"
	"gradnic/dataplane"
)

// Collector is a prometheus.Collector of one NIC.
type Collector struct {
	server *control.Server
}

// NewCollector makes the collector of a control plane and its NIC.
func NewCollector(s *control.Server) *Collector { return &Collector{server: s} }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("gradnic_"+name, help, labels, nil)
}

// counter is one of the data plane's counters, which ports and lanes have alike.
type counter struct {
	port, lane *prometheus.Desc // lane is nil where lanes do not count it
	value      func(*dataplane.Counters) uint64
}

func both(name, help string, value func(*dataplane.Counters) uint64) counter {
	return counter{desc("port_"+name, help+" By port.", "port"), desc("lane_"+name, help+" By lane.", "lane"), value}
}

var counters = []counter{
	both("received_frames_total", "Frames taken from receive rings.", func(c *dataplane.Counters) uint64 { return c.Received }),
	both("injected_frames_total", "Copies that an impairment made of received frames.", func(c *dataplane.Counters) uint64 { return c.Injected }),
	both("contributed_frames_total", "Frames whose values were added to a slot.", func(c *dataplane.Counters) uint64 { return c.Contributed }),
	both("duplicate_frames_total", "Frames of a contribution that had been seen before.", func(c *dataplane.Counters) uint64 { return c.Duplicates }),
	both("answered_frames_total", "ARP and echo requests that were answered.", func(c *dataplane.Counters) uint64 { return c.Answered }),
	both("passed_frames_total", "Frames that were reflected, forwarded or sunk.", func(c *dataplane.Counters) uint64 { return c.Passed }),
	both("results_total", "Slots that were completed.", func(c *dataplane.Counters) uint64 { return c.Results }),
	both("resent_results_total", "Results sent again to one worker that asked for a complete slot.", func(c *dataplane.Counters) uint64 { return c.Resent }),
	both("wrapped_elements_total", "Elements whose sum wrapped around.", func(c *dataplane.Counters) uint64 { return c.Wrapped }),
	both("replicas_total", "Copies of results that were to be sent.", func(c *dataplane.Counters) uint64 { return c.Replicas }),
	both("transmitted_frames_total", "Frames posted to transmit rings.", func(c *dataplane.Counters) uint64 { return c.Transmitted }),
	both("completed_frames_total", "Frames that came back from transmit rings.", func(c *dataplane.Counters) uint64 { return c.Completed }),
	both("reclaimed_frames_total", "Frames posted, and not reported sent when their socket was closed.", func(c *dataplane.Counters) uint64 { return c.Reclaimed }),
	both("receive_batches_total", "Receive batches that were not empty.", func(c *dataplane.Counters) uint64 { return c.Batches }),
	both("transmit_kicks_total", "Times the kernel was asked to transmit.", func(c *dataplane.Counters) uint64 { return c.Kicks }),
}

var (
	info = desc("info", "Who the NIC is; always 1.", "version", "mac", "ip")

	unrestored = desc("unrestored_jobs", "Jobs in the store that could not be installed at the start.")

	portDropped  = desc("port_dropped_frames_total", "Received frames that were dropped, by port and reason.", "port", "reason")
	portReplicas = desc("port_dropped_replicas_total", "Copies of results that were not sent, by port and reason.", "port", "reason")
	portKernel   = desc("port_kernel_dropped_frames_total", "Frames that the kernel lost before they were received, by port and reason.", "port", "reason")
	portSteered  = desc("port_steered_frames_total", "Frames that the steering program saw, by port and verdict.", "port", "verdict")
	portState    = desc("port_state", "1 for the state that the port is in, 0 for the others.", "port", "state")
	portRebuilds = desc("port_rebuilds_total", "Times the port got new sockets since its interface was gone or had changed.", "port")
	queueRx      = desc("queue_received_frames_total", "Frames taken from a queue's receive ring.", "port", "queue")
	queueBatches = desc("queue_receive_batches_total", "Receive batches of a queue that were not empty.", "port", "queue")
	queueTx      = desc("queue_transmitted_frames_total", "Frames posted to a queue's transmit ring.", "port", "queue")
	laneDropped  = desc("lane_dropped_frames_total", "Received frames that were dropped, by lane and reason.", "lane", "reason")
	laneReplicas = desc("lane_dropped_replicas_total", "Copies of results that were not sent, by lane and reason.", "lane", "reason")
	laneSleeps   = desc("lane_sleeps_total", "Times the lane went to sleep.", "lane")
	laneInFlight = desc("lane_in_flight_frames", "Frames received and not decided yet.", "lane")
	laneFrames   = desc("lane_frames", "Frames of memory by the place they are in.", "lane", "place")
	jobWorkers   = desc("job_workers", "Workers the job has.", "job", "tenant")
	jobJoined    = desc("job_joined_workers", "Workers of which a frame was taken.", "job", "tenant")
	jobMissing   = desc("job_missing_workers", "Workers that unfinished slots wait for, or that never came.", "job", "tenant")
	jobSlots     = desc("job_slots", "Slots of the job by state; both versions of a slot count.", "job", "tenant", "state")
	jobResults   = desc("job_results_total", "Slots that were completed, by job.", "job", "tenant")
	jobResent    = desc("job_resent_results_total", "Results sent again to one worker, by job.", "job", "tenant")
	jobWrapped   = desc("job_wrapped_elements_total", "Elements whose sum wrapped around, by job.", "job", "tenant")
	workerRx     = desc("worker_received_frames_total", "Frames received from a worker.", "job", "tenant", "rank")
	workerAdded  = desc("worker_contributed_frames_total", "Frames of a worker that were added to a slot.", "job", "tenant", "rank")
	workerAgain  = desc("worker_duplicate_frames_total", "Frames of a worker that repeated a contribution.", "job", "tenant", "rank")
	workerTx     = desc("worker_sent_results_total", "Results posted to a worker.", "job", "tenant", "rank")
	workerSeen   = desc("worker_last_seen_timestamp_seconds", "When the last frame of a worker was taken; workers that never came have none.", "job", "tenant", "rank")
	workerResent = desc("worker_resent_results_total", "Results sent to a worker again, as it asked for them.", "job", "tenant", "rank")
	workerLast   = desc("worker_last_contributions_total", "Slots for which a worker was the last to come: the others waited for it.", "job", "tenant", "rank")
	workerWaits  = desc("worker_missing_since_timestamp_seconds", "When the oldest unfinished slot that waits for a worker began, or the job was installed if it never came; workers that nobody waits for have none.", "job", "tenant", "rank")
	jobTimes     = desc("job_slot_duration_seconds", "Time of slots from their first contribution to their completion, as the batches of the lane saw it.", "job", "tenant")
	portTaken    = desc("port_budget_taken_frames_total", "Frames charged to the packet budget of a tenant, and taken; strays are senders that are no worker.", "port", "tenant")
	portOver     = desc("port_budget_dropped_frames_total", "Frames that the steering program dropped since they came faster than the packet budget of their tenant.", "port", "tenant")
	portBudget   = desc("port_budget_frames_per_second", "The packet budget of a tenant; tenants without a bound have none.", "port", "tenant")
	portStates   = []dataplane.PortState{dataplane.StateUp, dataplane.StateDown, dataplane.StateRebuilding, dataplane.StateBroken}
	single       = []*prometheus.Desc{info, unrestored, portDropped, portReplicas, portKernel, portSteered, portState, portRebuilds, queueRx, queueBatches, queueTx, laneDropped, laneReplicas, laneSleeps, laneInFlight, laneFrames, jobWorkers, jobJoined, jobMissing, jobSlots, jobResults, jobResent, jobWrapped, workerRx, workerAdded, workerAgain, workerTx, workerSeen, workerResent, workerLast, workerWaits, jobTimes, portTaken, portOver, portBudget}
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range single {
		out <- d
	}
	for i := range counters {
		out <- counters[i].port
		out <- counters[i].lane
	}
}

// sink gives values to Prometheus.
type sink chan<- prometheus.Metric

func (s sink) count(d *prometheus.Desc, v uint64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (s sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s sink) reasons(d *prometheus.Desc, of string, counts map[string]uint64) {
	for reason, n := range counts {
		s.count(d, n, of, reason)
	}
}

// Collect implements prometheus.Collector: it reads the NIC's counters now.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	s := sink(out)
	nic := c.server.NIC()
	cfg := nic.Config()
	s.gauge(info, 1, c.server.Version(), cfg.MAC.String(), cfg.IP.String())
	s.gauge(unrestored, float64(len(c.server.Jobs().Lost())))
	snap := nic.Snapshot()
	for i := range snap.Ports {
		s.port(&snap.Ports[i])
	}
	for i := range snap.Lanes {
		s.lane(&snap.Lanes[i])
	}
	for _, job := range c.server.Jobs().List() {
		s.job(&job)
	}
}

func (s sink) port(p *dataplane.PortSnapshot) {
	for i := range counters {
		s.count(counters[i].port, counters[i].value(&p.Counters), p.Name)
	}
	s.reasons(portDropped, p.Name, p.Drops)
	s.reasons(portReplicas, p.Name, p.ReplicaDrops)
	s.reasons(portSteered, p.Name, p.Steering)
	if p.Kernel.StatisticsError == "" { // a gap says that they could not be read, a zero would not
		k := &p.Kernel
		s.count(portKernel, k.RxDropped, p.Name, "rx-dropped")
		s.count(portKernel, k.RxRingFull, p.Name, "rx-ring-full")
		s.count(portKernel, k.FillRingEmpty, p.Name, "fill-ring-empty")
		s.count(portKernel, k.RxInvalid, p.Name, "rx-invalid-descriptor")
		s.count(portKernel, k.TxInvalid, p.Name, "tx-invalid-descriptor")
	}
	for _, state := range portStates {
		in := 0.0
		if p.State == state {
			in = 1
		}
		s.gauge(portState, in, p.Name, string(state))
	}
	s.count(portRebuilds, p.Rebuilds, p.Name)
	for i := range p.PerQueue {
		q := &p.PerQueue[i]
		number := strconv.Itoa(q.Queue)
		s.count(queueRx, q.Received, p.Name, number)
		s.count(queueBatches, q.Batches, p.Name, number)
		s.count(queueTx, q.Transmitted, p.Name, number)
	}
	for _, b := range p.Budgets {
		s.count(portTaken, b.Taken, p.Name, b.Name)
		s.count(portOver, b.Dropped, p.Name, b.Name)
		if b.Rate != 0 {
			s.gauge(portBudget, float64(b.Rate), p.Name, b.Name)
		}
	}
}

func (s sink) lane(l *dataplane.LaneSnapshot) {
	lane := strconv.Itoa(l.Lane)
	for i := range counters {
		s.count(counters[i].lane, counters[i].value(&l.Counters), lane)
	}
	s.reasons(laneDropped, lane, l.Drops)
	s.reasons(laneReplicas, lane, l.ReplicaDrops)
	s.count(laneSleeps, l.Sleeps, lane)
	s.gauge(laneInFlight, float64(l.InFlight), lane)
	for _, f := range []struct {
		place  string
		frames uint64
	}{
		{"free", l.Frames.Free}, {"fill", l.Frames.Fill}, {"transmit", l.Frames.Transmit},
		{"handoff", l.Frames.Handoff}, {"held", l.Frames.Held},
	} {
		s.gauge(laneFrames, float64(f.frames), lane, f.place)
	}
}

func (s sink) job(j *control.JobInfo) {
	joined := 0
	for _, w := range j.Status {
		if w.Joined {
			joined++
		}
		if !w.Known {
			continue
		}
		rank := strconv.Itoa(w.Rank)
		s.count(workerRx, w.Received, j.Name, j.Tenant, rank)
		s.count(workerAdded, w.Contributed, j.Name, j.Tenant, rank)
		s.count(workerAgain, w.Duplicates, j.Name, j.Tenant, rank)
		s.count(workerTx, w.Sent, j.Name, j.Tenant, rank)
		s.count(workerResent, w.Resent, j.Name, j.Tenant, rank)
		s.count(workerLast, w.Last, j.Name, j.Tenant, rank)
		if since := j.MissingSince(w.Rank); !since.IsZero() {
			s.gauge(workerWaits, float64(since.UnixMilli())/1e3, j.Name, j.Tenant, rank)
		}
		if !w.LastSeen.IsZero() {
			s.gauge(workerSeen, float64(w.LastSeen.UnixMilli())/1e3, j.Name, j.Tenant, rank)
		}
	}
	s.gauge(jobWorkers, float64(j.Workers), j.Name, j.Tenant)
	s.gauge(jobJoined, float64(joined), j.Name, j.Tenant)
	s.gauge(jobMissing, float64(len(j.Missing)), j.Name, j.Tenant)
	s.gauge(jobSlots, float64(j.Use.Total-j.Use.InUse), j.Name, j.Tenant, "free")
	s.gauge(jobSlots, float64(j.Use.Waiting), j.Name, j.Tenant, "waiting")
	s.gauge(jobSlots, float64(j.Use.Complete), j.Name, j.Tenant, "complete")
	s.count(jobResults, j.Results, j.Name, j.Tenant)
	s.count(jobResent, j.Resent, j.Name, j.Tenant)
	s.count(jobWrapped, j.Wrapped, j.Name, j.Tenant)
	s.times(&j.Times, j.Name, j.Tenant)
}

// times is a histogram of Prometheus, whose buckets count all that is not above their bound.
func (s sink) times(c *dataplane.Completions, job, tenant string) {
	below, count := map[float64]uint64{}, uint64(0)
	for _, b := range c.Buckets {
		count += b.Slots
		if b.Below != 0 {
			below[(b.Below - 1).Seconds()] = count // whole nanoseconds: below is at most one less
		}
	}
	s <- prometheus.MustNewConstHistogram(jobTimes, count, c.Sum.Seconds(), below, job, tenant)
}
