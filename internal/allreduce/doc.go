// Package allreduce is what `gradnic worker` runs: it takes an array from a NumPy
// file or makes a random one, sums it with the other workers' through the NIC,
// checks the sum, and reports as nccl-tests does.
//
// Random arrays are a function of seed, rank and length, so that every worker
// can make those of all others and check every element without another network.
package allreduce
