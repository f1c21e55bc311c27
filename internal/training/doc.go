// Package training is a small language model that learns from real text, data-parallel: what a codec in the network costs in
// the end is the loss of a model that was trained through it.
//
// The model predicts the next character: an embedding, a gated recurrent unit (Cho et al., 2014, in the form that PyTorch has)
// unrolled over a sequence, and a linear layer, with cross entropy and AdamW (Loshchilov and Hutter, ICLR 2019). Each worker
// has a replica and a shard of the text; in every step it computes the gradient of its own batch, and what [Run] is given as
// [Reduce] makes the mean of all workers' gradients of it. Everything is pure Go on float32 and starts from a seed, so a
// run whose sums are in order of rank repeats to the last bit.
//
// The text (text.txt) is this project's own documentation at one point in time, under the project's licence.
package training
