// Package ringbench measures the ring of NICs over links of a real rate, beside what the links allow, beside a ring in
// software over TCP on the same links, and beside the model of package plan.
//
// Nodes are network namespaces, each behind a link that a bridge with tbf limits (internal/ringlab), all connected by a
// switch. A raw AF_XDP sender tries a link first; when it gets more than 1.02 of the
// rate across, the run ends as INVALID, and when it gets less than 0.9, the rows say INVALID: the machine is busy.
//
// A training step is 20 layers whose compute takes the time that an accelerator would: the host waits for it and its
// cores are free. Gradients are real (internal/gradients). The compute time is set so that communication is 51 % of the
// naive plain step at 6 nodes, as Ma et al. (arXiv 2204.10943) measured it, and kept for other numbers of nodes.
package ringbench
