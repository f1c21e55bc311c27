// Package forecast runs the model of package plan over ways to sum gradients,
// numbers of nodes and batches, and writes what came out: as a document for
// scripts, as tables, and as a page with plots. It is what `gradnic model`
// prints.
package forecast
