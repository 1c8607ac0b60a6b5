"""PREFACE: what a gateway tells the daemon about a client's connection, before its bytes."""

from cudaspec.message import Message, Number, Part

NUMBERS = [
    Number("MAX_TRANSPORT_BYTES", 16, "the name of a transport"),
]
MESSAGES = [
    Message(
        8,
        "PREFACE",
        "gateway",
        "Facts about a client's connection, before the client's own bytes.",
        (
            Part("magic magic"),
            Part("text transport", "`tls`, `ucx` or `grpc`", least=1, most="MAX_TRANSPORT_BYTES"),
            Part("text peer", "where the client is: `192.0.2.7:5123`", most="MAX_NAME_BYTES"),
            Part(
                "text tenant",
                "the tenant that the client's certificate or access token names, empty for none",
                most="MAX_NAME_BYTES",
                needs="authenticated",
            ),
            Part("bool authenticated", "1: the gateway has checked the tenant"),
        ),
    )
]
