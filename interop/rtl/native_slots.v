// native_slots is what the native protocol's pool remembers of each slot beside its values (docs/protocol.md, "Pool").
// Round r of a slot lives in version r mod 2; numbers compare by RFC 1982.
//
// `judge` asks about a contribution of `rank` to `round` of `slot`. The answers are there in the same cycle and the
// memory is changed at the next edge. After reset or `forget` the memory is cleared, a slot a cycle, until `ready`.
module native_slots #(
    parameter SLOT = 9,               // 2^SLOT slots
    parameter RANK = 5                // 2^RANK workers at most
) (
    input  wire            clk,
    input  wire            rst,
    input  wire            forget,
    output reg             ready,

    input  wire [RANK:0]   workers,
    input  wire            judge,
    input  wire [SLOT-1:0] slot,
    input  wire [31:0]     round,
    input  wire [RANK-1:0] rank,

    output wire            first,     // added, as the round's first: its values replace what is there
    output wire            add,       // added to what is there
    output wire            completes, // and it is the last one
    output wire            answer,    // the round is complete: its result goes to the sender once more
    output wire            stale,
    output wire            early      // neither of these: a duplicate
);
    localparam WORKERS = 1 << RANK;
    localparam WIDTH   = 1 + 32 + RANK + 1 + WORKERS;

    // A version: in use, round, how many are to come, who has come.
    reg [WIDTH-1:0] even [0:(1<<SLOT)-1];
    reg [WIDTH-1:0] odd  [0:(1<<SLOT)-1];
    reg [SLOT-1:0]  clear;

    wire               used, other_used;
    wire [31:0]        in, other_in;
    wire [RANK:0]      left, other_left;
    wire [WORKERS-1:0] seen, other_seen;
    assign {used, in, left, seen}                         = round[0] ? odd[slot] : even[slot];
    assign {other_used, other_in, other_left, other_seen} = round[0] ? even[slot] : odd[slot];
    wire unused = &{1'b0, other_seen};

    // after: a comes after b. The difference, as a signed number, is above 0.
    wire [31:0] past_own   = round - in;
    wire [31:0] past_other = round - other_in;
    wire        after_own   = past_own != 32'd0 && !past_own[31];
    wire        after_other = past_other != 32'd0 && !past_other[31];

    wire same     = used && in == round;
    wire complete = left == {RANK+1{1'b0}};
    wire follows  = other_used && past_other == 32'd1 && other_left == {RANK+1{1'b0}};

    assign first     = !same && (!used || after_own) && (follows || (!other_used && !used));
    assign stale     = !same && ((used && !after_own) || (other_used && !after_other));
    assign early     = !same && !stale && !first;
    assign add       = same && !complete && !seen[rank];
    assign answer    = same && complete;
    assign completes = (add && left == {{RANK{1'b0}}, 1'b1}) || (first && workers == {{RANK{1'b0}}, 1'b1});

    wire [WORKERS-1:0] bit_of = {{WORKERS-1{1'b0}}, 1'b1} << rank;
    wire [WIDTH-1:0]   next   = {1'b1, round, (first ? workers : left) - 1'b1, (first ? {WORKERS{1'b0}} : seen) | bit_of};
    wire [SLOT-1:0]    address = ready ? slot : clear;
    wire [WIDTH-1:0]   data    = ready ? next : {WIDTH{1'b0}};
    wire               counts  = judge && (first || add);

    always @(posedge clk) begin
        if (!ready || (counts && !round[0]))
            even[address] <= data;
        if (!ready || (counts && round[0]))
            odd[address] <= data;
        if (rst || forget) begin
            ready <= 1'b0;
            clear <= {SLOT{1'b0}};
        end else if (!ready) begin
            clear <= clear + 1'b1;
            ready <= &clear;
        end
    end
endmodule
