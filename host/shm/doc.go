// Package shm is what a process and its NIC have in common: the layout of the memory that both see, its mapping, and the
// packets and descriptors that go over the Unix socket between them. Package host is the process's end, host/nic the NIC's;
// neither needs the other, so that a process's library holds nothing of a NIC.
package shm
