/*
 * gradnic.h: the way from a process to its NIC, a node of a ring of NICs (docs/ring.md).
 *
 * A process connects to the Unix socket of its node's NIC (`gradnic ring --host-socket PATH`), hands it arrays of float32,
 * and finds the sums over all nodes in them. Every node must start the same operations, of the same length, in the same
 * order, with the same codec and the same options.piece.
 *
 * Functions return GRADNIC_OK, GRADNIC_TIMEOUT (gradnic_wait only) or an error below 0. With an error they write why, as
 * text that ends with a zero, to err, of errlen bytes; err may be NULL. All may be called from any thread. Strings are
 * UTF-8.
 *
 * A process that was forked from the one that loaded the library gets GRADNIC_EFORK from every call: use spawn, or exec, and
 * load the library there.
 */
#ifndef GRADNIC_H
#define GRADNIC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number of this interface. A library with another one from gradnic_abi() must not be used with this header. */
#define GRADNIC_ABI 1

enum {
	GRADNIC_OK = 0,
	GRADNIC_TIMEOUT = 1,   /* gradnic_wait: the operation is still under way */
	GRADNIC_EINVAL = -1,   /* an argument cannot be: nothing was done */
	GRADNIC_EGONE = -2,    /* the NIC is gone: what was under way is undefined */
	GRADNIC_ECLOSED = -3,  /* the handle is closed, or was never one */
	GRADNIC_EREQUEST = -4, /* the NIC could not do it: the data are undefined, weights that it did not finish are as before */
	GRADNIC_EFORK = -5,    /* this process was forked after the library was loaded */
	GRADNIC_ENOMEM = -6,   /* the shared memory has no such piece free */
	GRADNIC_EOTHER = -7
};

/* Handles. 0 is none; the number of one that is closed is not used again. */
typedef uint64_t gradnic_nic;
typedef uint64_t gradnic_op;

typedef struct {
	int64_t arena;      /* bytes of shared memory, at least 4096; 0: 64 MiB */
	int64_t piece;      /* elements of a request, into which operations are cut; the same on all nodes; 0: 2^20 */
	int64_t timeout_ms; /* how long connecting may take, and another process's last requests on this NIC; 0: 10 s */
} gradnic_options;

typedef struct {
	float *data;          /* replaced by the sum over all nodes; with weights by the new weights */
	uint64_t count;       /* elements; 0: only wait until all nodes have got here */
	float *weights;       /* NULL, or count elements apart from data, replaced by weights - learning_rate * sum, rounded once */
	float learning_rate;
	const char *codec;    /* between NICs: "none", "bfp16", "bfp16-intel", "fp16", "bf16"; NULL: "bfp16" */
	int64_t deadline_ms;  /* of each piece; 0: the NIC's own (gradnic ring --deadline) */
} gradnic_request;

/* What an operation took, summed over its pieces. */
typedef struct {
	uint64_t elapsed_ns; /* from when the NIC took a piece to its end */
	uint64_t waited_ns;  /* of that, until the first slice could be sent */
	uint64_t blocks;     /* blocks of one slice a node, with padding */
	uint64_t non_finite; /* sums made at this node that were infinite or NaN */
} gradnic_stats;

#define GRADNIC_MAX_NODES 64

typedef struct {
	uint32_t node;    /* this one's number */
	uint32_t count;   /* nodes in the ring */
	uint16_t nodes[GRADNIC_MAX_NODES]; /* in the ring's order */
	uint32_t generation;
	uint32_t outstanding; /* requests at the NIC, 8 at most */
	char phase[16];       /* "forming", "formed" or "failed" */
	char failure[512];    /* why it has failed, or while it forms why a neighbour takes no part; "" otherwise */
} gradnic_status_t;

/* The library's version, such as "v1.2.0" or a revision. Valid for as long as the library is loaded. */
const char *gradnic_version(void);

/* GRADNIC_ABI of the library. */
int gradnic_abi(void);

/* Connects to the NIC that listens on path. o may be NULL. One process at a time has a node. */
int gradnic_open(const char *path, const gradnic_options *o, gradnic_nic *nic, char *err, size_t errlen);

/* Ends the connection. With wait other than 0 first waits for what is under way; otherwise that ends with GRADNIC_ECLOSED.
 * Memory from gradnic_alloc stays valid until it is freed. GRADNIC_OK also when it is closed already. */
int gradnic_close(gradnic_nic nic, int wait, char *err, size_t errlen);

/* Gives count elements of memory that the NIC sees, aligned to 64 bytes, not cleared. Operations on it, or on parts of it,
 * copy nothing. count must not be 0. */
int gradnic_alloc(gradnic_nic nic, uint64_t count, float **p, char *err, size_t errlen);

/* Gives it back, once no operation uses it; also after gradnic_close. */
int gradnic_free(gradnic_nic nic, float *p, char *err, size_t errlen);

/* Starts an operation and returns at once. data and weights are the NIC's until gradnic_wait has returned something other
 * than GRADNIC_TIMEOUT; r itself and its strings are not needed any more. Memory from elsewhere is copied there and back. */
int gradnic_start(gradnic_nic nic, const gradnic_request *r, gradnic_op *op, char *err, size_t errlen);

/* Waits for an operation, timeout_ms at most; below 0: for ever. When it returns anything but GRADNIC_TIMEOUT, the operation
 * is over and its handle is no longer one. stats may be NULL. */
int gradnic_wait(gradnic_op op, int64_t timeout_ms, gradnic_stats *stats, char *err, size_t errlen);

/* gradnic_start and gradnic_wait in one. */
int gradnic_all_reduce(gradnic_nic nic, const gradnic_request *r, gradnic_stats *stats, char *err, size_t errlen);

/* What the NIC says of the ring. */
int gradnic_status(gradnic_nic nic, gradnic_status_t *status, char *err, size_t errlen);

/* Forms the ring again, of count nodes in this order. Each of them must be told the same. What was under way fails. */
int gradnic_reform(gradnic_nic nic, const uint16_t *nodes, size_t count, char *err, size_t errlen);

#ifdef __cplusplus
}
#endif

#endif
