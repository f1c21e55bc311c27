// Package isolation measures what one tenant's flood does to another tenant's all-reduce.
//
// Tenant A has two workers that sum vectors through the NIC. Tenant B sits behind a port of its own and sends from
// inside the kernel, as fast as it was told: frames that are malformed, frames that are valid but of nobody's job, or
// contributions to its own job above its budget. The yardstick is the same all-reduce while the same generator, on the
// same CPU, hits a netdev beside the NIC that has a program which only drops. So what the generator takes of the
// machine is in both, and the ratio has the NIC's part alone. Yardstick and floods take turns within a round.
package isolation
