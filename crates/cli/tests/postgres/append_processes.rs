//! Many agents on one server, each with a `loopstore append` process of its own, and their behaviour when the server
//! accepts no more connections.

use crate::support::amount::amount;
use crate::support::append_process::AppendProcess;
use crate::support::server;

fn open_processes(count: usize, address: &str) -> Vec<AppendProcess> {
    let open = |at: usize| AppendProcess::open(address, &format!("agent-{at}"));
    (0..count).map(open).collect()
}

#[test]
fn many_processes_at_one_server_hold_a_connection_each_and_lose_nothing() {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.prepared();
    let count = amount("LOOPSTORE_PROCESSES", 64) as usize;
    let mut processes = open_processes(count, &server.address(&name));
    for round in 0..3 {
        for process in &mut processes {
            process.tell(&format!("prompt {round}"));
        }
        for process in &mut processes {
            process.acknowledged().unwrap();
        }
    }
    let mut client = server.client("postgres");
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'";
    let connections: i64 = client.query_one(sql, &[&name]).unwrap().get(0);
    assert!(
        connections <= count as i64,
        "{connections} of {count} processes"
    );
    println!("{count} idle processes hold {connections} connections");
    for process in processes {
        assert_eq!(process.close(), "");
    }
    let mut client = server.client(&name);
    let sql = "SELECT count(*), count(DISTINCT session_id) FROM v_messages";
    let row = client.query_one(sql, &[]).unwrap();
    let stored: (i64, i64) = (row.get(0), row.get(1));
    assert_eq!(stored, (3 * count as i64, count as i64));
}

#[test]
fn who_finds_no_connection_is_told_what_to_do_and_the_others_go_on() {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.prepared();
    let mut client = server.client(&name);
    let role = format!("crowd_{name}");
    client
        .batch_execute(&format!(
            "CREATE ROLE {role} LOGIN CONNECTION LIMIT 5;
             GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {role};
             GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}"
        ))
        .unwrap();
    let mut processes = open_processes(12, &server.address_as(&role, &name));
    for process in &mut processes {
        process.tell("prompt");
    }
    let stored = processes
        .iter_mut()
        .map(|process| process.acknowledged().is_ok());
    let stored: Vec<bool> = stored.collect();
    let count = stored.iter().filter(|is_stored| **is_stored).count();
    assert_eq!(count, 5);
    for (process, is_stored) in processes.into_iter().zip(stored) {
        let said = process.close();
        assert_eq!(said.is_empty(), is_stored, "{said}");
        assert!(
            is_stored || said.contains("raise max_connections"),
            "{said}"
        );
    }
    let sql = "SELECT count(*) FROM v_messages";
    let messages: i64 = client.query_one(sql, &[]).unwrap().get(0);
    assert_eq!(messages, 5);
    client
        .batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))
        .unwrap();
}
