// switchml_slots is what SwitchML remembers of each slot beside its values, and its rule, to the letter. Of each of the
// two sets: who has contributed, how many are still to come, the largest exponents.
//
// `judge` asks about a packet of `rank` for `slot` in `set`. The answers below it are there in the same cycle and the
// memory is changed at the next edge. After reset the memory is cleared, a slot a cycle, until `ready`.
module switchml_slots #(
    parameter SLOT = 9,               // 2^SLOT slots
    parameter RANK = 5                // 2^RANK workers at most
) (
    input  wire                clk,
    input  wire                rst,
    output reg                 ready,

    input  wire [RANK:0]       workers,
    input  wire                judge,
    input  wire [SLOT-1:0]     slot,
    input  wire                set,
    input  wire [RANK-1:0]     rank,
    input  wire signed [7:0]   e0,
    input  wire signed [7:0]   e1,

    output wire                overwrite, // values: the packet's replace what is there
    output wire                add,       // values: the packet's are added
    output wire                broadcast, // the slot is complete with this packet: the result goes to all
    output wire                unicast,   // it was complete before: the result goes to the sender once more
    output wire signed [7:0]   max0,      // exponents with this packet
    output wire signed [7:0]   max1
);
    localparam WORKERS = 1 << RANK;

    reg [WORKERS-1:0] seen0 [0:(1<<SLOT)-1];
    reg [WORKERS-1:0] seen1 [0:(1<<SLOT)-1];
    // By {slot, set}: how many are to come (RANK+1 bits), exponents.
    reg [RANK+16:0]   rest  [0:(2<<SLOT)-1];
    reg [SLOT-1:0]    clear;

    wire [WORKERS-1:0] bit_of = {{WORKERS-1{1'b0}}, 1'b1} << rank;
    wire [WORKERS-1:0] mine   = set ? seen1[slot] : seen0[slot];
    wire [WORKERS-1:0] other  = set ? seen0[slot] : seen1[slot];
    wire               counted = mine[rank];
    wire [RANK:0]      left;
    wire signed [7:0]  was0, was1;
    assign {left, was0, was1} = rest[{slot, set}];

    wire single = workers == {{RANK{1'b0}}, 1'b1};

    // The first packet is not the one that finds nobody's bit: bits of an older use may still be set by a worker that
    // broke the rules, or be cleared while a round is open. Values and exponents go by the bits, the end by the count.
    assign overwrite = mine == {WORKERS{1'b0}};
    assign add       = !overwrite && !counted;
    assign broadcast = !counted && (single || left == {{RANK{1'b0}}, 1'b1});
    assign unicast   = counted && (single || left == {RANK+1{1'b0}});
    assign max0      = overwrite || (!counted && e0 > was0) ? e0 : was0;
    assign max1      = overwrite || (!counted && e1 > was1) ? e1 : was1;

    wire [RANK:0] next_left = counted || single ? left :
                              left == {RANK+1{1'b0}} ? workers - 1'b1 : left - 1'b1;

    wire               we      = !ready || judge;
    wire [SLOT-1:0]    address = ready ? slot : clear;
    wire [WORKERS-1:0] joined    = ready ? mine | bit_of : {WORKERS{1'b0}};
    wire [WORKERS-1:0] withdrawn = ready ? other & ~bit_of : {WORKERS{1'b0}};

    always @(posedge clk) begin
        if (we) begin
            seen0[address] <= set && ready ? withdrawn : joined;
            seen1[address] <= set && ready ? joined : withdrawn;
            rest[{address, set && ready}] <= ready ? {next_left, max0, max1} : {RANK+17{1'b0}};
        end
        if (!ready)
            rest[{address, 1'b1}] <= {RANK+17{1'b0}};
        if (rst) begin
            ready <= 1'b0;
            clear <= {SLOT{1'b0}};
        end else if (!ready) begin
            clear <= clear + 1'b1;
            ready <= &clear;
        end
    end
endmodule
