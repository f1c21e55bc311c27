// Package accl is a rank among ACCL cards inside the NIC: the engine of package worker/accl on a lane, with frames as the
// card's network stack makes them, instead of a socket of the kernel. The NIC's own MAC and IP address are the rank's.
//
// It lives as a service of the data plane (dataplane.Service). The lane takes the datagrams to the rank's UDP port, adds
// up, and emits what follows in the same round. A call that is waiting to be begun, or given up, is left in a mailbox that
// the lane looks into when it is woken. Frames have up to 4138 bytes: the NIC must take them (dataplane.Config.LongestFrame,
// or an MTU of 4124 and more), with chunks of 4096 they take two.
//
// The peers' MAC addresses must be known before: nobody asks for them later. Resolve asks by ARP from the interface.
package accl
